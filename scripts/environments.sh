#!/bin/sh
# Makes an environment from each requirements/KIND-*.txt under FOLDER: scripts/environments.sh KIND FOLDER
# Does nothing when all is as locked. One that cannot be made is named and left out; who needs it says so.
set -eu
cd "$(dirname "$0")/.."
kind=$1 folder=$2

python=
for lock in requirements/"$kind"-*.txt; do
    name=$(basename "$lock" .txt)
    name=${name#"$kind"-}
    locked=$(cat "$lock" scripts/environments.sh | sha256sum)
    [ "$(cat "$folder/$name/.locked" 2>/dev/null)" != "$locked" ] || ! "$folder/$name/bin/python" -c '' 2>/dev/null || continue
    [ -n "$python" ] || python=$(scripts/python.sh)
    echo "making $folder/$name" >&2
    rm -rf "${folder:?}/$name"
    scripts/uv.sh venv -q --seed --python "$python" "$folder/$name" || "$python" -m venv --clear "$folder/$name"
    if scripts/install.sh "$folder/$name/bin/python" --require-hashes -r "$lock"; then
        echo "$locked" >"$folder/$name/.locked"
    else
        echo "could not make $folder/$name" >&2
        rm -rf "${folder:?}/$name"
    fi
done
