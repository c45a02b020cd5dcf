#!/bin/sh
# Makes the image of code-search sandboxes, sandbox-search:latest (or NAME); prints nothing if it exists.
#
#     scripts/search-image.sh [NAME]
#
# Built on the samples' base image, made from Debian's packages, so no image registry is needed; or on another one with
# BASE_IMAGE=<Debian image>.
set -eu
cd "$(dirname "$0")/.."

name=${1:-sandbox-search:latest}
base=${BASE_IMAGE:-sandbox-samples/base:latest}
label=sandbox.search.content

[ -n "${BASE_IMAGE:-}" ] || scripts/base-image.sh
content=$(docker image inspect -f '{{.Id}}' "$base" 2>/dev/null | cat - deploy/search-image/Dockerfile | sha256sum | cut -c1-64)
have=$(docker image inspect -f "{{index .Config.Labels \"$label\"}}" "$name" 2>/dev/null || true)
[ "$have" != "$content" ] || exit 0

echo "making $name on $base" >&2
docker build -q --build-arg "BASE_IMAGE=$base" --label "$label=$content" -t "$name" deploy/search-image >/dev/null
