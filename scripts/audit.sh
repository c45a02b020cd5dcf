#!/bin/sh
# Looks up each locked package of the server in a database of known holes: AUDIT_ARGS="--vulnerability-service osv
# --osv-url https://osv.example/v1/query" names another than PyPI's. It needs that database on the network.
# Fails for a hole, and for a package that could not be looked up, which pip-audit alone would only mention.
set -eu
cd "$(dirname "$0")/.."
# shellcheck disable=SC2086 -- a list of arguments
exec .cache/supply/tools/bin/pip-audit --requirement requirements/server.txt --disable-pip --require-hashes --strict \
    --progress-spinner off ${AUDIT_ARGS:-}
