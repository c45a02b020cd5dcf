#!/bin/sh
# In a container the server must listen on every address, which it refuses without API keys. SANDBOX_BIND is the host's
# address that the port is published on: where that is loopback, only the host's own processes can reach it, as with a
# server that runs on the host. Publishing it openly without keys takes both SANDBOX_BIND and SANDBOX_ALLOW_INSECURE=1.
set -eu
case ${SANDBOX_BIND:-} in
127.* | localhost | ::1 | "[::1]") export SANDBOX_ALLOW_INSECURE=1 ;;
esac
# {address} in SANDBOX_NODE_URL becomes the container's own on its first network: in a swarm the one that other hosts reach. A name
# would not do: a task's is in the DNS only once it is healthy, and no longer while it ends what is under way.
case ${SANDBOX_NODE_URL:-} in
*"{address}"*)
    address=$(hostname -i)
    export SANDBOX_NODE_URL="${SANDBOX_NODE_URL%%"{address}"*}${address%% *}${SANDBOX_NODE_URL#*"{address}"}"
    ;;
esac
exec sandbox-server "$@"
