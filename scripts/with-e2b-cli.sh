#!/bin/sh
# Runs a command with E2B's command line, as requirements/e2b-cli locks it: scripts/with-e2b-cli.sh COMMAND...
#
# Its packages come from the registry that npm is configured for. SANDBOX_TEST_E2B_CLI names the program. Without Node.js, root
# gets Debian's.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
locked=$here/../requirements/e2b-cli
at=$here/../.cache/e2b-cli

command -v npm >/dev/null 2>&1 || "$here/apt.sh" nodejs npm
if ! cmp -s "$locked/package-lock.json" "$at/.locked"; then
    echo "making .cache/e2b-cli" >&2
    rm -rf "$at"
    mkdir -p "$at"
    cp "$locked/package.json" "$locked/package-lock.json" "$at"
    (cd "$at" && npm ci --omit=dev --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null)
    cp "$locked/package-lock.json" "$at/.locked"
fi
SANDBOX_TEST_E2B_CLI=$at/node_modules/.bin/e2b
export SANDBOX_TEST_E2B_CLI
exec "$@"
