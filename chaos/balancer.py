"""The load balancer: HAProxy, configured like deploy/haproxy but for this run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from chaos.network import free_port
from chaos.processes import Process, until

_START_S = 20.0
_CONFIG = """global
    maxconn 8192

defaults
    mode http
    timeout connect 2s
    # the longest answer is that of a start: 300 s
    timeout client 660s
    timeout server 660s
    # a client that sends half a request is not waited for longer
    timeout http-request 10s
    retries 3
    option redispatch 1
    # only what never reached a server: anything else may have run, and the client repeats it with its key
    retry-on conn-failure

frontend trainers
    bind 127.0.0.1:{port}
    default_backend nodes

backend nodes
    balance leastconn
    option httpchk GET /readyz
    http-check expect status 200
    default-server check inter 1s fastinter 500ms fall 2 rise 1
{servers}
"""


@contextmanager
def balancer(folder: Path, logs: Path, servers: Mapping[str, str]) -> Iterator[str]:
    """Run it and yield its URL; `servers`: node -> host:port."""
    port = free_port()
    lines = "\n".join(f"    server {node} {address}" for node, address in servers.items())
    config = folder / "haproxy.cfg"
    config.write_text(_CONFIG.format(port=port, servers=lines))
    process = Process("HAProxy", ["haproxy", "-db", "-f", config], logs / "haproxy.log")
    url = f"http://127.0.0.1:{port}"

    def passes() -> bool:
        try:
            return httpx.get(f"{url}/healthz", timeout=5).is_success
        except httpx.TransportError:
            return False

    try:
        process.start()
        until(passes, _START_S, "the balancer forwards requests", part=process)
        yield url
    finally:
        process.end()
