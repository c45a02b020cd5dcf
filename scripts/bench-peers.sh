#!/bin/sh
# Makes an environment for each peer of the benchmarks, and one for the plots, under bench/.peers from their lock files.
# Does nothing when all is as locked. An environment that cannot be made is named and left out: the report says so.
set -eu
cd "$(dirname "$0")/.."

python=
for lock in requirements/bench-*.txt; do
    name=$(basename "$lock" .txt)
    name=${name#bench-}
    folder=bench/.peers/$name
    locked=$(cat "$lock" scripts/bench-peers.sh | sha256sum)
    [ "$(cat "$folder/.locked" 2>/dev/null)" != "$locked" ] || ! "$folder/bin/python" -c '' 2>/dev/null || continue
    [ -n "$python" ] || python=$(scripts/python.sh)
    echo "making $folder" >&2
    rm -rf "$folder"
    if "$python" -m venv "$folder" && "$folder/bin/python" -m pip install -q --require-hashes -r "$lock"; then
        echo "$locked" >"$folder/.locked"
    else
        echo "could not make $folder: its figures will be missing" >&2
        rm -rf "$folder"
    fi
done
