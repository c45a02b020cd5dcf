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
# SANDBOX_RUN_AS (a user id): the server gives up root, all capabilities and the way back, and keeps the group of the
# engine's socket. Whoever reaches that socket is still as much as root; a file that a server is made to write is not.
if [ -n "${SANDBOX_RUN_AS:-}" ] && [ "$(id -u)" = 0 ]; then
    socket=${DOCKER_HOST:-/var/run/docker.sock}
    groups=--clear-groups
    [ -S "${socket#unix://}" ] && groups="--groups=$(stat -Lc %g "${socket#unix://}")"
    chown -R "$SANDBOX_RUN_AS:$SANDBOX_RUN_AS" "$SANDBOX_DATA_DIR"
    if [ -d /run/sandbox-server ] && [ -z "${SANDBOX_FIFO_DIR:-}" ]; then
        export SANDBOX_FIFO_DIR="/run/sandbox-server/$SANDBOX_RUN_AS"
        chmod 0711 /run/sandbox-server
        mkdir -p -m 0711 "$SANDBOX_FIFO_DIR"
        chown "$SANDBOX_RUN_AS:$SANDBOX_RUN_AS" "$SANDBOX_FIFO_DIR"
    fi
    exec setpriv --reuid="$SANDBOX_RUN_AS" --regid="$SANDBOX_RUN_AS" "$groups" --inh-caps=-all --bounding-set=-all \
        --no-new-privs -- env HOME=/tmp sandbox-server "$@"
fi
# An engine that remaps users made the folder for its own root; what is in it belongs to this one.
if [ "$(id -u)" = 0 ] && [ -d "${SANDBOX_DATA_DIR:-}" ]; then chown 0:0 "$SANDBOX_DATA_DIR" || true; fi
exec sandbox-server "$@"
