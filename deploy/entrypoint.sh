#!/bin/sh
# In a container the server must listen on every address, which it refuses without API keys. SANDBOX_BIND is the host's
# address that the port is published on: where that is loopback, only the host's own processes can reach it, as with a
# server that runs on the host. Publishing it openly without keys takes both SANDBOX_BIND and SANDBOX_ALLOW_INSECURE=1.
set -eu
case ${SANDBOX_BIND:-} in
127.* | localhost | ::1 | "[::1]") export SANDBOX_ALLOW_INSECURE=1 ;;
esac
exec sandbox-server "$@"
