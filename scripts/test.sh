#!/bin/sh
# Runs the tests: most of them beside each other, then one by one those that need the machine to themselves (`conftest.py`).
# Arguments go to both runs of pytest; TEST_WORKERS is how many run at a time: two more than CPUs, for most of them wait.
set -u
cd "$(dirname "$0")/.."
unset PYTHONDONTWRITEBYTECODE # each server that a test starts would compile all of our modules
none=5 # pytest's exit status when it selected no test

run() {
    .venv/bin/pytest "$@"
    status=$?
    [ "$status" = "$none" ] || ran=yes
    [ "$status" = "$none" ] || [ "$status" = 0 ] || failed=$status
}

ran='' failed=0
run -n "${TEST_WORKERS:-$(($(nproc) + 2))}" --dist loadfile --no-loadscope-reorder -m 'not alone' "$@"
run -m alone "$@"
[ -n "$ran" ] || exit "$none"
exit "$failed"
