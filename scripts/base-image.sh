#!/bin/sh
# Makes the base of the sample images and of the compose file's images; prints nothing if it exists.
#
# Built from Debian's packages by mmdebstrap, so no image registry is needed. If BASE_IMAGE=<Debian image> is set, or
# mmdebstrap cannot run, built from that image (default debian:bookworm-slim) and the same packages.
set -eu
cd "$(dirname "$0")/.."

name=sandbox-samples/base:latest
packages=bash,ca-certificates,coreutils,findutils,git,procps,python-is-python3,python3,python3-pytest
label=sandbox.samples.content
content=$(printf '%s\n' "${BASE_IMAGE:-}" | cat - scripts/base-image.sh | sha256sum | cut -c1-64)

have=$(docker image inspect -f "{{index .Config.Labels \"$label\"}}" "$name" 2>/dev/null || true)
[ "$have" != "$content" ] || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

bootstrap() {
    echo "making $name from Debian's packages" >&2
    scripts/apt.sh mmdebstrap || return 1
    # Only what a repository's tests need: no manuals, no translations.
    mmdebstrap --quiet --variant=minbase --include="$packages" \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        bookworm "$work/base.tar" || return 1
    docker import --change "LABEL $label=$content" --change 'ENV LANG=C.UTF-8' --change 'CMD ["bash"]' \
        "$work/base.tar" "$name" >/dev/null
}

extend() {
    echo "making $name from $1" >&2
    scripts/certificates.sh "$work"
    cat >"$work/Dockerfile" <<DOCKERFILE
FROM $1
COPY certificates/ /usr/local/share/ca-certificates/
RUN apt-get update && apt-get install -y --no-install-recommends $(echo "$packages" | tr , ' ') \\
    && update-ca-certificates && rm -rf /var/lib/apt/lists/*
ENV LANG=C.UTF-8
LABEL $label=$content
DOCKERFILE
    docker build -q -t "$name" "$work" >/dev/null
}

if [ -n "${BASE_IMAGE:-}" ]; then
    extend "$BASE_IMAGE"
elif [ "$(id -u)" != 0 ] || ! bootstrap; then
    extend debian:bookworm-slim
fi
