#!/bin/sh
# Prints a Python >= 3.11 that can create virtual environments; as root on Debian, installs the distribution's.
set -eu
here=$(dirname "$0")

usable() {
    # A pyenv shim may exist for a version that is not selected, and Debian's python3 lacks ensurepip: try it instead of looking for files.
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for name in ${PYTHON:-} python3.11 python3.12 python3 python3.13 /usr/bin/python3; do
        if usable "$name"; then
            "$name" -c 'import sys; print(sys.executable)'
            return 0
        fi
    done
    return 1
}

find_python || { "$here/apt.sh" python3 python3-venv && find_python; } || {
    echo "no Python >= 3.11 with venv and ensurepip found; name one with PYTHON=/path/to/python" >&2
    exit 1
}
