#!/bin/sh
# Looks up each locked package of the server in a database of known vulnerabilities, which must be reachable: PyPI's, or
# another one by AUDIT_ARGS="--vulnerability-service osv --osv-url https://osv.example/v1/query".
# Fails if a package has a vulnerability or could not be looked up; pip-audit alone would only mention the latter.
set -eu
cd "$(dirname "$0")/.."
# shellcheck disable=SC2086 -- a list of arguments
exec .cache/supply/tools/bin/pip-audit --requirement requirements/server.txt --disable-pip --require-hashes --strict \
    --progress-spinner off ${AUDIT_ARGS:-}
