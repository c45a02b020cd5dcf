#!/bin/sh
# Runs the tests in three rounds; `conftest.py` lists the tests of the last two.
# 1. Most tests, in parallel.
# 2. `apart`: tests that cannot run beside those of round 1, two at a time. They mostly wait, so the unit tests (`pure`)
#    run beside them, in two processes with a lower priority. The unit tests have a pytest cache of their own, because a
#    cache supports one run at a time.
# 3. `alone`: tests that need the machine to themselves, one by one.
# Arguments go to each run of pytest. TEST_WORKERS is the number of parallel tests in round 1; by default four more than
# CPUs, because most tests wait.
# If at most 15 tests failed, they run once more, one by one. Those that pass then are UNSTEADY: they need more of the
# machine than they may, or conflict with another test. Find the cause. After a failed collection nothing runs again.
set -u
cd "$(dirname "$0")/.."
unset PYTHONDONTWRITEBYTECODE # otherwise each server that a test starts would compile all our modules
none=5 # pytest's exit status when it selected no test
few=15 # number of tests that may have failed by chance
cache=.pytest_cache pure_cache=.cache/pytest-pure

run() {
    .venv/bin/pytest "$@"
    note $?
}

note() { # STATUS of pytest; the worst is kept
    [ "$1" = "$none" ] || ran=yes
    [ "$1" = "$none" ] || [ "$1" -le "$failed" ] || failed=$1
}

last_failed() { # CACHE; a name per line
    .venv/bin/python -c 'import json, sys; [print(name) for name in json.load(open(sys.argv[1]))]' \
        "$1/v/cache/lastfailed" 2>/dev/null
}

ran='' failed=0
rm -f "$cache/v/cache/lastfailed" "$pure_cache/v/cache/lastfailed"
run -n "${TEST_WORKERS:-$(($(nproc) + 4))}" --dist loadfile --no-loadscope-reorder -m 'not alone and not apart and not pure' "$@"
said=$(mktemp)
nice -n 5 .venv/bin/pytest -n 2 --dist loadfile -m pure -o cache_dir="$pure_cache" "$@" >"$said" 2>&1 &
pure=$!
run -n 2 --dist loadfile -m apart "$@"
wait "$pure" && pure=0 || pure=$?
cat "$said"
rm -f "$said"
note "$pure"
run -m alone "$@"
found=$(last_failed "$cache"; last_failed "$pure_cache")
if [ "$failed" = 1 ] && [ -n "$found" ] && ! echo "$found" | grep -qv :: && [ "$(echo "$found" | wc -l)" -le "$few" ]; then
    printf '\nThese failed and run once more. Those that pass now are UNSTEADY: find the cause.\n%s\n' "$found"
    failed=0
    run --last-failed --last-failed-no-failures none "$@"
    run -o cache_dir="$pure_cache" --last-failed --last-failed-no-failures none "$@"
fi
[ -n "$ran" ] || exit "$none"
exit "$failed"
