#!/bin/sh
# Runs a command with Harbor's own client in an image: scripts/with-harbor.sh COMMAND...
#
# Harbor needs a newer Python than Debian 12 has, so the image is made of Debian 13's packages by mmdebstrap. Certificates
# of the host are trusted in it. SANDBOX_TEST_HARBOR names the image, HARBOR another release. Needs root and a Docker engine.
set -eu
here=$(dirname "$0")
release=${HARBOR:-0.24.0}
name=sandbox-clients/harbor:$release

if ! docker image inspect "$name" >/dev/null 2>&1; then
    [ "$(id -u)" = 0 ] || {
        echo "mmdebstrap needs root here" >&2
        exit 1
    }
    "$here/apt.sh" mmdebstrap debian-archive-keyring
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    echo "making $name from Debian's packages" >&2
    mmdebstrap --quiet --variant=minbase --include=ca-certificates,python3,python3-venv \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' trixie "$work/base.tar"
    docker import "$work/base.tar" sandbox-clients/python:trixie >/dev/null
    rm "$work/base.tar"
    bundle=/etc/ssl/certs/ca-certificates.crt
    cp $bundle "$work/host.crt"
    cat >"$work/Dockerfile" <<DOCKERFILE
FROM sandbox-clients/python:trixie
COPY host.crt $bundle
ENV LANG=C.UTF-8 PIP_CERT=$bundle REQUESTS_CA_BUNDLE=$bundle SSL_CERT_FILE=$bundle LITELLM_LOCAL_MODEL_COST_MAP=True
RUN python3 -m venv /opt/harbor && /opt/harbor/bin/pip install -q --no-cache-dir 'harbor[e2b]==$release'
DOCKERFILE
    docker build -q --network host -t "$name" "$work" >/dev/null
    rm -rf "$work"
fi
SANDBOX_TEST_HARBOR=$name
export SANDBOX_TEST_HARBOR
exec "$@"
