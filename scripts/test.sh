#!/bin/sh
# Runs the tests in three rounds; `conftest.py` lists the tests of the last two.
# 1. Most tests, in parallel.
# 2. `apart`: tests that cannot run beside those of round 1, two at a time. They mostly wait, so the unit tests (`pure`)
#    run beside them, in two processes with a lower priority. The unit tests have a pytest cache of their own, because a
#    cache supports one run at a time.
# 3. `alone`: tests that need the machine to themselves, one by one.
# Arguments go to each run of pytest. TEST_WORKERS is the number of parallel tests in round 1; by default four more than
# CPUs, because most tests wait.
# If at most 15 tests failed, unit tests not counted, they run once more, one by one. Those that pass then are UNSTEADY:
# they need more of the machine than they may, or conflict with another test. Find the cause. After a failed collection
# nothing runs again.
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
