#!/bin/sh
# Makes an environment from each requirements/KIND-*.txt under FOLDER: scripts/environments.sh KIND FOLDER [NAMES], a pattern
# requirements/beside-NAME-*.txt are other releases of one package, or other packages, each in its own folder under NAME/share; one
# may ask for a newer Python than the project's if what is tested of it needs none. Does nothing if all is as locked. An environment that cannot be made is named and left out; its users report it.
set -eu
cd "$(dirname "$0")/.."
kind=$1 folder=$2 only=${3:-*}
export UV_LINK_MODE="${UV_LINK_MODE:-hardlink}" # 2 GB less to write; uv copies where its cache is on another file system

# A lock lists all dependencies. Modules that are not imported are not compiled: with veRL, most of them.
install() { scripts/install.sh "$at/bin/python" --no-compile --require-hashes --no-deps "$@"; }

make_one() {
    scripts/uv.sh venv -q --seed --python "$python" "$at" || "$python" -m venv --clear "$at" || return
    install -r "$lock" || return
    for beside in requirements/beside-"$name"-*.txt; do
        [ -e "$beside" ] || continue
        install --python-version 3.14 --only-binary :all: --target "$at/share/$(basename "$beside" .txt)" -r "$beside" || return
    done
}

# torch is large, and its source differs between machines: an environment that needs it uses the project's own
link_torch() {
    for part in .venv/lib/python*/site-packages/torch .venv/lib/python*/site-packages/torchgen \
        .venv/lib/python*/site-packages/torch-*.dist-info; do
        [ ! -d "$part" ] || ln -sfn "$PWD/$part" "$(echo "$at"/lib/python*/site-packages)/"
    done
}

mkdir -p "$folder"
python=
for lock in requirements/"$kind"-$only.txt; do
    name=$(basename "$lock" .txt)
    name=${name#"$kind"-}
    at=$PWD/$folder/$name
    ! command -v flock >/dev/null 2>&1 || { exec 9>"$folder/.making-$name" && flock 9; } # one that runs beside us makes the same ones
    locked=$(cat "$lock" $(ls requirements/beside-"$name"-*.txt 2>/dev/null) scripts/environments.sh | sha256sum)
    if [ "$(cat "$at/.locked" 2>/dev/null)" != "$locked" ] || ! "$at/bin/python" -c '' 2>/dev/null; then
        [ -n "$python" ] || {
            python=$(scripts/python.sh)
            scripts/uv.sh --version >/dev/null
            PIP_CONFIGURED=$(.cache/uv/bin/pip config list) # once: each call takes half a second of CPU
            export PIP_CONFIGURED
        }
        echo "making $folder/$name" >&2
        rm -rf "${at:?}"
        if make_one; then
            echo "$locked" >"$at/.locked"
        else
            echo "could not make $folder/$name" >&2
            rm -rf "${at:?}"
        fi
    fi
    ! grep -q "^torch==.*sys_platform == 'none'" "$lock" || link_torch
done
