#!/bin/sh
# Makes .venv from the lock files, with this project and its client in it (editable). Does nothing if all is as locked.
set -eu
cd "$(dirname "$0")/.."

command -v git >/dev/null 2>&1 || scripts/apt.sh git

projects=.
[ ! -f client/pyproject.toml ] || projects=". client"

locked() { cat requirements/dev.txt requirements/swebench4.txt scripts/venv.sh scripts/install.sh | sha256sum; }
named() { for project in $projects; do cat "$project/pyproject.toml"; done | sha256sum; }
stands() { [ "$(cat ".venv/$1" 2>/dev/null)" = "$2" ]; }

if ! stands .locked "$(locked)" || ! .venv/bin/python -c '' 2>/dev/null; then
    python=$(scripts/python.sh)
    echo "making .venv with $python" >&2
    rm -rf .venv
    scripts/uv.sh venv -q --seed --python "$python" .venv || "$python" -m venv --clear .venv
    # a quarter of the modules is ever imported; the first import compiles them
    scripts/install.sh .venv/bin/python --no-compile --require-hashes -r requirements/dev.txt
    scripts/install.sh .venv/bin/python --no-compile --require-hashes --no-deps --target .venv/share/swebench-4.1.0 \
        -r requirements/swebench4.txt
    locked >.venv/.locked
fi

if ! stands .named "$(named)"; then
    for project in $projects; do
        scripts/install.sh .venv/bin/python --no-deps --no-build-isolation -e "$project"
    done
    named >.venv/.named
fi
