#!/bin/sh
# The health check asks /readyz, which wants one of the servers' keys: the first of SANDBOX_API_KEYS, else of the secret.
set -eu
keys=${SANDBOX_API_KEYS:-}
secret=${SANDBOX_SECRETS_DIR:-/run/secrets}/sandbox_api_keys
if [ -z "$keys" ] && [ -r "$secret" ]; then
    keys=$(cat "$secret")
fi
key=$(printf '%s' "${keys%%,*}" | tr -d '[:space:]')
export SANDBOX_CHECK_KEY="${key:-none}" # an empty header is none to haproxy's parser
exec "$@"
