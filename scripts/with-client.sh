#!/bin/sh
# Builds an image with a client from PyPI, then runs a command: scripts/with-client.sh NAME PACKAGE==RELEASE COMMAND...
#
# For clients that need a newer Python than Debian 12 has: mmdebstrap makes the base from Debian 13's packages. uv installs
# the client in /opt/NAME; pip would try each release of some dependencies. The image trusts the host's certificates. The
# command gets the image's name in the variable SANDBOX_TEST_NAME, with NAME in upper case. Needs a Docker engine, and
# root to make the base.
set -eu
here=$(dirname "$0")
name=$1 package=$2
shift 2
image=sandbox-clients/$name:${package##*==}
python=sandbox-clients/python:trixie

if ! docker image inspect "$image" >/dev/null 2>&1; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    if ! docker image inspect "$python" >/dev/null 2>&1; then
        [ "$(id -u)" = 0 ] || {
            echo "mmdebstrap needs root here" >&2
            exit 1
        }
        "$here/apt.sh" mmdebstrap debian-archive-keyring
        echo "making $python from Debian's packages" >&2
        mmdebstrap --quiet --variant=minbase --include=ca-certificates,python3,python3-venv \
            --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
            --dpkgopt='path-exclude=/usr/share/doc/*' trixie "$work/base.tar"
        docker import "$work/base.tar" "$python" >/dev/null
        rm "$work/base.tar"
    fi
    echo "making $image" >&2
    bundle=/etc/ssl/certs/ca-certificates.crt
    cp $bundle "$work/host.crt"
    cat >"$work/Dockerfile" <<DOCKERFILE
FROM $python
COPY host.crt $bundle
ENV LANG=C.UTF-8 PIP_CERT=$bundle REQUESTS_CA_BUNDLE=$bundle SSL_CERT_FILE=$bundle LITELLM_LOCAL_MODEL_COST_MAP=True
RUN python3 -m venv /opt/$name && /opt/$name/bin/pip install -q --no-cache-dir uv && \\
    /opt/$name/bin/uv pip install -q --no-cache --python /opt/$name/bin/python '$package'
DOCKERFILE
    docker build -q --network host -t "$image" "$work" >/dev/null
    rm -rf "$work"
    trap - EXIT
fi
export "SANDBOX_TEST_$(echo "$name" | tr '[:lower:]' '[:upper:]')=$image"
exec "$@"
