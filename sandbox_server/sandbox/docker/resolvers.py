"""Name servers for egress rules with `*.domain`: a dnsmasq in the container's network namespace, from outside it.

The dnsmasq answers only names below the allowed domains. Before it sends an answer, it enters the answer's addresses in
the sets of the rules (`sandbox.egress`). Only its own queries leave the namespace: they carry the mark of the
connection that asked. The container can change neither the dnsmasq nor the rules. Without the dnsmasq no name is
resolved and no further address becomes reachable, so one that has ended (a container can exhaust its memory) is started
again.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import docker.types

from sandbox_server import telemetry
from sandbox_server.errors import EgressUnavailable, ServiceError
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.labels import DEADLINE, NODE, RESOLVER, ROLE
from sandbox_server.tasks import TaskSet

log = telemetry.logger(__name__)

ADDRESS = "127.0.0.53"
"""Address of the resolver; it is in the container's /etc/resolv.conf from the creation on."""
_DNSMASQ = "/usr/sbin/dnsmasq"
_PREFIX = "sandbox-resolver-"
_OPTIONS = (
    "--keep-in-foreground",
    "--conf-file=/dev/null",
    "--no-resolv",
    "--no-hosts",
    "--cache-size=0",  # an answer from the cache would enter no addresses in the sets
    "--stop-dns-rebind",  # the owner of an allowed domain must not be able to open private addresses
    "--conntrack",
    f"--listen-address={ADDRESS}",
    "--bind-dynamic",  # with --bind-interfaces it does not know the connection that asked, nor therefore its mark
    "--user=",  # it stays root
    "--group=",
    "--pid-file=",
    "--log-facility=-",
)


class Resolvers:
    """The name servers on one engine; each is removed with its container."""

    def __init__(self, engine: Engine, *, image: str, node: str) -> None:
        self._engine = engine
        self._image = image
        self._node = node
        self._made: set[str] = set()
        """Containers for which this process has created a name server."""
        self._removing = TaskSet("resolvers")
        self._starting: set[str] = set()
        """Ids of the name servers that are being started again."""

    async def is_asked_by(self, container_id: str) -> bool:
        """Whether the container asks ADDRESS: it was created with rules that have domains."""
        found: dict[str, Any] = await self._engine.call(lambda api: api.inspect_container(container_id))
        return (found["HostConfig"].get("Dns") or []) == [ADDRESS]

    async def run(self, container_id: str, arguments: Sequence[str]) -> None:
        """Replace the running container's name server by one with these `arguments`; without any, only remove it.

        Raises:
            EgressUnavailable: the name server does not start. ImageUnavailable, and other InfrastructureError.
        """
        await self.remove(container_id)
        if not arguments:
            return
        found: dict[str, Any] = await self._engine.call(lambda api: api.inspect_container(container_id))
        self._made.add(container_id)
        helper = await self._engine.call(lambda api: self._create(api, container_id, found, arguments))
        try:
            await self._engine.call(lambda api: api.start(helper))
        except ServiceError as e:
            raise EgressUnavailable(
                f"the name server beside a sandbox did not start: {e.detail[:500]}; if {self._image} has no dnsmasq,"
                " `sandbox-server images build egress` builds one that has"
            ) from e

    async def remove(self, container_id: str) -> None:
        """Remove the container's name server, if it has one."""
        with suppress(ServiceError):  # there was none; what a failed removal leaves is seen by `tend`
            await self._engine.call(lambda api: api.remove_container(_PREFIX + container_id, force=True, v=True))

    def forget(self, container_id: str) -> None:
        """Remove the name server of a removed container; `tend` removes those that an earlier process created."""
        if container_id in self._made:
            self._made.discard(container_id)
            self._removing.start(self.remove(container_id))

    def tend(self, found: Sequence[dict[str, Any]]) -> None:
        """Remove name servers whose container is gone; start those again that have ended while their container runs.

        `found`: all containers with our labels.
        """
        states = {one["Id"]: one["State"] for one in found}
        for one in found:
            owner, resolver = one["Labels"].get(RESOLVER), one["Id"]
            if not owner or one["Labels"][NODE] != self._node:
                continue
            if owner not in states:
                self._removing.start(self.remove(owner))
            elif states[owner] == "running" and one["State"] == "exited" and resolver not in self._starting:
                self._starting.add(resolver)
                self._removing.start(self._start_again(resolver, owner))

    async def _start_again(self, resolver: str, owner: str) -> None:
        telemetry.INFRA_ERRORS.labels(EgressUnavailable.code).inc()
        log.warning("a sandbox's name server had ended; it is started again", container_id=owner[:12])
        try:
            await self._engine.call(lambda api: api.start(resolver))
        except ServiceError as e:  # it or its container is being removed; else the next `tend` tries again
            log.info("name server not started again", container_id=owner[:12], error=e.detail)
        finally:
            self._starting.discard(resolver)

    def _create(self, api: Any, container_id: str, found: dict[str, Any], arguments: Sequence[str]) -> str:
        created: dict[str, Any] = api.create_container(
            self._image,
            name=_PREFIX + container_id,
            command=[*_OPTIONS, *arguments],
            entrypoint=[_DNSMASQ],
            user="0",
            labels={
                NODE: self._node,
                ROLE: "resolver",
                RESOLVER: container_id,
                DEADLINE: found["Config"]["Labels"][DEADLINE],
            },
            host_config=api.create_host_config(
                network_mode=f"container:{container_id}",
                cap_drop=["ALL"],
                cap_add=["NET_ADMIN", "NET_BIND_SERVICE"],
                security_opt=["no-new-privileges"],
                read_only=True,
                mem_limit="64m",
                pids_limit=32,  # it forks for each query by TCP
                log_config=docker.types.LogConfig(type="none"),
            ),
        )
        return str(created["Id"])
