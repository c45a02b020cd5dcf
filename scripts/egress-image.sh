#!/bin/sh
# Makes the image that restricts what sandboxes may reach (SANDBOX_EGRESS_IMAGE): nft, dnsmasq and their libraries, no shell.
# Prints nothing if it exists. Built like scripts/base-image.sh from Debian's packages or from BASE_IMAGE=<Debian image>.
set -eu
cd "$(dirname "$0")/.."

name=sandbox-egress:latest
label=sandbox.samples.content
content=$(printf '%s\n' "${BASE_IMAGE:-}" | cat - scripts/egress-image.sh | sha256sum | cut -c1-64)

have=$(docker image inspect -f "{{index .Config.Labels \"$label\"}}" "$name" 2>/dev/null || true)
[ "$have" != "$content" ] || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

bootstrap() {
    echo "making $name from Debian's packages" >&2
    scripts/apt.sh mmdebstrap || return 1
    mmdebstrap --quiet --variant=extract --include=nftables,dnsmasq-base bookworm "$work/all.tar" || return 1
    mkdir "$work/root"
    tar -C "$work/root" -xf "$work/all.tar" --exclude=./dev --exclude='./usr/lib/*/gconv*' --exclude='./usr/share/*' \
        --exclude='./bin/*' --exclude='./usr/bin/*' --exclude='./var/*' || return 1
    tar -C "$work/root" -c . | docker import --change "LABEL $label=$content" --change 'ENTRYPOINT ["/usr/sbin/nft"]' \
        - "$name" >/dev/null
}

extend() {
    echo "making $name from $1" >&2
    scripts/certificates.sh "$work"
    cat >"$work/Dockerfile" <<DOCKERFILE
FROM $1
COPY certificates/ /usr/local/share/ca-certificates/
RUN apt-get update && apt-get install -y --no-install-recommends nftables dnsmasq-base && rm -rf /var/lib/apt/lists/*
ENTRYPOINT ["/usr/sbin/nft"]
LABEL $label=$content
DOCKERFILE
    docker build -q -t "$name" "$work" >/dev/null
}

if [ -n "${BASE_IMAGE:-}" ]; then
    extend "$BASE_IMAGE"
elif [ "$(id -u)" != 0 ] || ! bootstrap; then
    extend debian:bookworm-slim
fi
