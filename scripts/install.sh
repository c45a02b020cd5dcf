#!/bin/sh
# Installs into the environment of a Python: scripts/install.sh PYTHON ARGUMENTS..., those of `pip install`.
# By uv, in a tenth of the time that pip takes; by pip where uv cannot be had or cannot use the registries. Both compile
# what they install unless told not to (--no-compile): a Python that may not write compiles it anew at each start.
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
