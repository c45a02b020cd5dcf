#!/bin/sh
# Installs into the environment of a Python: scripts/install.sh PYTHON ARGUMENTS..., the arguments of `pip install`.
# Uses uv, which takes a tenth of pip's time, or pip if uv is not available or cannot use the registries. Both compile
# modules unless given --no-compile: a Python that may not write would compile them again at each start.
set -eu
here=$(dirname "$0")
python=$1
shift

case " $* " in
*" --no-compile "*) ;;
*) export UV_COMPILE_BYTECODE=1 ;;
esac
"$here/uv.sh" pip install -q --python "$python" "$@" || {
    echo "uv could not install $*: trying pip" >&2
    exec "$python" -m pip install -q "$@"
}
