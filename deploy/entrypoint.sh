#!/bin/sh
# In a container the server must listen on all addresses, which it refuses to do without API keys. SANDBOX_BIND is the
# host's address on which the port is published. If that is loopback, only processes of the host can reach the server, so
# it may run without keys. To publish it on another address without keys, SANDBOX_ALLOW_INSECURE=1 must be set too.
set -eu
case ${SANDBOX_BIND:-} in
127.* | localhost | ::1 | "[::1]") export SANDBOX_ALLOW_INSECURE=1 ;;
esac
# {address} in SANDBOX_NODE_URL becomes the container's address on its first network; in a swarm other hosts reach that one.
# A task's name would not do: DNS has it only while the task is healthy, so not while it starts, nor while it stops.
case ${SANDBOX_NODE_URL:-} in
*"{address}"*)
    address=$(hostname -i)
    export SANDBOX_NODE_URL="${SANDBOX_NODE_URL%%"{address}"*}${address%% *}${SANDBOX_NODE_URL#*"{address}"}"
    ;;
esac
# SANDBOX_RUN_AS (a user id): the server gives up root and all capabilities for good, and keeps the group of the engine's
# socket. Access to that socket still amounts to root; but an attacker who makes the server write a file writes it as this user.
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
# An engine that remaps users created the folder for the remapped root; its files belong to this container's root.
if [ "$(id -u)" = 0 ] && [ -d "${SANDBOX_DATA_DIR:-}" ]; then chown 0:0 "$SANDBOX_DATA_DIR" || true; fi
exec sandbox-server "$@"
