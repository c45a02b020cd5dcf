#!/bin/sh
# Pulls each image that the stacks take from a registry, and writes down what its name means today:
# build/pins.env for compose (`docker compose --env-file build/pins.env up`) and image builds,
# build/pins/kustomization.yaml, a component for Kubernetes. With --list it prints SETTING NAME lines and pulls nothing.
set -eu
cd "$(dirname "$0")/.."

# where files name them, so that none is forgotten
named() {
    sed -n 's/^ARG \(BASE_IMAGE\)=\(.*\)/\1 \2/p' Dockerfile deploy/*/Dockerfile
    sed -n 's/.*image: "${\([A-Z]*_IMAGE\):-\([^}]*\)}".*/\1 \2/p' docker-compose.yml deploy/haproxy/compose.yml deploy/swarm/stack.yml
    sed -n 's/^ *image: \([a-z0-9./-]*:[a-z0-9.-]*\)$/- \1/p' deploy/kubernetes/base/*.yaml
}
public() { named | grep -v ' sandbox-' | sort -u; } # sandbox-*: built here

if [ "${1:-}" = --list ]; then
    public
    exit
fi
mkdir -p build/pins
public >build/pins/names
env=build/pins/env component=build/pins/kustomization.yaml.new
: >"$env"
printf 'apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nimages:\n' >"$component"
while read -r setting name; do
    docker pull -q "$name" >/dev/null || { echo "$name cannot be pulled; nothing was written" >&2 && exit 1; }
    digest=$(docker image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$name" | sed -n 's/.*@//p' | head -n 1)
    [ -n "$digest" ] || { echo "$name has no digest: it was not pulled from a registry; nothing was written" >&2 && exit 1; }
    if [ "$setting" = - ]; then
        printf -- '  - name: %s\n    digest: %s # %s\n' "${name%:*}" "$digest" "$name" >>"$component"
    else
        echo "$setting=${name%:*}@$digest" >>"$env"
    fi
done <build/pins/names
mv "$env" build/pins.env
mv "$component" build/pins/kustomization.yaml
rm build/pins/names
cat build/pins.env build/pins/kustomization.yaml
