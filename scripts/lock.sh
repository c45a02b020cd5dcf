#!/bin/sh
# Remakes requirements/*.txt (every version and hash) from pyproject.toml and requirements/*.in.
# Pass --upgrade to take the newest versions instead of keeping the locked ones.
set -eu
cd "$(dirname "$0")/.."

compile() {
    out=$1
    shift
    scripts/uv.sh pip compile -q --universal --python-version "${python:-3.11}" --generate-hashes --no-emit-index-url \
        --custom-compile-command 'make lock' -o "requirements/$out" "$@"
}

compile uv.txt "$@" requirements/uv.in
compile server.txt "$@" pyproject.toml --extra postgres --extra objects --extra languages --extra otel requirements/build.in
compile dev.txt "$@" -c requirements/server.txt pyproject.toml --extra postgres --extra objects --extra languages --extra otel --group dev requirements/build.in
compile swebench4.txt "$@" --no-deps requirements/swebench4.in
for alone in requirements/bench-*.in requirements/sdk-*.in requirements/supply-*.in requirements/site-*.in; do
    overrides=${alone%.in}.overrides # packages to leave out
    [ -f "$overrides" ] && overrides="--override $overrides" || overrides=
    # shellcheck disable=SC2086
    compile "$(basename "$alone" .in).txt" "$@" $overrides "$alone"
done
for beside in requirements/beside-*.in; do
    python=3.14 compile "$(basename "$beside" .in).txt" "$@" --no-deps "$beside" # see environments.sh
done
