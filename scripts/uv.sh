#!/bin/sh
# Runs uv with the registries that pip is configured for: scripts/uv.sh pip install ...
# uv itself is installed from there by pip, pinned by requirements/uv.txt, into .cache/uv.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tools=$here/../.cache/uv
lock=$here/../requirements/uv.txt

locked=$(sha256sum <"$lock")
if [ "$(cat "$tools/.locked" 2>/dev/null)" != "$locked" ] || ! "$tools/bin/uv" --version >/dev/null 2>&1; then
    rm -rf "$tools"
    "$("$here/python.sh")" -m venv "$tools"
    "$tools/bin/python" -m pip install -q --require-hashes -r "$lock"
    echo "$locked" >"$tools/.locked"
fi

configured=${PIP_CONFIGURED-$("$tools/bin/python" -m pip config list)}
pass() { # pass VARIABLE OPTION [SEPARATOR]: passes pip's option from its environment or files, unless the variable is set
    eval "[ -z \"\${$1:-}\" ]" || return 0
    for section in :env: install global; do
        value=$(echo "$configured" | sed -n "s/^$section\.$2='\(.*\)'$/\1/p" | sed 's/\\n/ /g' | xargs | tr ' ' "${3:- }")
        [ -z "$value" ] || break
    done
    [ -z "$value" ] || export "$1=$value"
}
pass UV_DEFAULT_INDEX index-url
pass UV_INDEX extra-index-url
pass UV_FIND_LINKS find-links ,
pass UV_NO_INDEX no-index
pass UV_INSECURE_HOST trusted-host
pass SSL_CERT_FILE cert
pass ALL_PROXY proxy

# pip takes the best version of all indexes; uv by default takes it from the first index that has the package.
export UV_INDEX_STRATEGY="${UV_INDEX_STRATEGY:-unsafe-best-match}"
export UV_LINK_MODE="${UV_LINK_MODE:-copy}" UV_HTTP_TIMEOUT="${UV_HTTP_TIMEOUT:-180}" UV_PYTHON_DOWNLOADS=never
exec "$tools/bin/uv" "$@"
