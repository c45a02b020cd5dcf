#!/bin/sh
# Compiles all test modules as pytest does when it first reads them. Does nothing if it has been done.
# Otherwise each of the parallel processes would compile all of them.
set -eu
cd "$(dirname "$0")/.."
unset PYTHONDONTWRITEBYTECODE

mkdir -p .cache
! command -v flock >/dev/null 2>&1 || { exec 9>.cache/tests-compiling && flock 9; } # one that runs beside us does the same
[ ! -e .cache/tests-compiled ] || exit 0
.venv/bin/pytest -q --collect-only >/dev/null 2>&1 || exit 0 # what is wrong is reported by the tests' own run
touch .cache/tests-compiled
