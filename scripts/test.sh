#!/bin/sh
# Runs the tests: most in parallel, then beside each other alone those that no others may run beside, and one by one those
# that need the machine to themselves (`conftest.py`). The second kind mostly waits: the unit tests run in the CPU time that
# it leaves, in two processes, with a lower priority and a cache of their own, because pytest's knows one run at a time. They do
# not run twice.
# Arguments go to each run of pytest; TEST_WORKERS is the number of parallel tests: four more than CPUs, because most tests wait.
# If only a few tests failed, they run once more, alone and after all others, and are reported as unsteady. Find the cause:
# such a test needs more of the machine than it may, or conflicts with another one. A failed collection is no such test.
set -u
cd "$(dirname "$0")/.."
unset PYTHONDONTWRITEBYTECODE # otherwise each server that a test starts would compile all our modules
none=5 # pytest's exit status when it selected no test
few=15 # number of tests that may have failed by chance
failures=.pytest_cache/v/cache/lastfailed

run() {
    .venv/bin/pytest "$@"
    note $?
}

note() { # STATUS of pytest
    status=$1
    [ "$status" = "$none" ] || ran=yes
    [ "$status" = "$none" ] || [ "$status" = 0 ] || failed=$status
}

names() { .venv/bin/python -c 'import json, sys; print("\n".join(json.load(open(sys.argv[1]))))' "$failures" 2>/dev/null; }

ran='' failed=0
rm -f "$failures"
run -n "${TEST_WORKERS:-$(($(nproc) + 4))}" --dist loadfile --no-loadscope-reorder -m 'not alone and not apart and not pure' "$@"
said=$(mktemp)
nice -n 5 .venv/bin/pytest -n 2 --dist loadfile -m pure -o cache_dir=.cache/pytest-pure "$@" >"$said" 2>&1 &
pure=$!
run -n 2 --dist loadfile -m apart "$@"
wait "$pure" && pure=0 || pure=$?
cat "$said"
rm -f "$said"
run -m alone "$@"
if [ "$failed" = 1 ] && found=$(names) && [ -n "$found" ] && ! echo "$found" | grep -qv :: && [ "$(echo "$found" | wc -l)" -le "$few" ]; then
    printf '\nThese failed and run once more. Those that pass now are UNSTEADY: find the cause.\n%s\n' "$found"
    failed=0
    run --last-failed --last-failed-no-failures none "$@"
fi
note "$pure"
[ -n "$ran" ] || exit "$none"
exit "$failed"
