"""Puts egress rules into a container's network namespace from outside.

A helper container joins the namespace for about 0.25 s and runs nft there, so the restricted container has no right to
change the rules and its image needs no tool. The namespace and its rules end with each run of the container; so a
restricted container is always started without a network and connected once the rules are in place.
"""

import asyncio
import re
import socket
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from json import dumps
from typing import Any
from urllib.parse import quote

import docker.types

from sandbox_server import clock, telemetry
from sandbox_server.errors import EgressUnavailable, ImageUnavailable, MalformedRequest, SandboxLost, ServiceError
from sandbox_server.sandbox.base import ContainerSpec, Role
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.images import Images
from sandbox_server.sandbox.docker.labels import DEADLINE, EGRESS, NODE, ROLE, SID, TOKEN
from sandbox_server.sandbox.docker.refusals import Refusals
from sandbox_server.sandbox.docker.resolvers import Resolvers
from sandbox_server.sandbox.egress import COUNTER, REMOVE, TABLE, Egress, NameServer, resolver_of, ruleset
from sandbox_server.tasks import TaskSet

log = telemetry.logger(__name__)

_NFT = "/usr/sbin/nft"
_RESOLVE_S = 10.0
_HELPER_S = 30  # takes 0.2 s; on a host with many simultaneous starts, seconds
_OWN_STACKS = ("runsc", "kata")
"""Parts of the names of OCI runtimes whose packets do not pass the rules of the container's network namespace.

gVisor also does not see a network that is connected after its start.
"""
_MAX_RULES = 100_000  # bytes; one argument of a command can hold 128 KiB


class Guard:
    """Restricts containers of one engine, using an image that has nft."""

    def __init__(
        self,
        engine: Engine,
        images: Images,
        ceiling: Egress | None,
        *,
        image: str,
        name_server: NameServer | None,
        node: str,
        token: str,
        oci_runtime: str | None,
    ) -> None:
        """`ceiling`: the rules for all sessions. `token`: label by which this process recognizes its helpers.

        `oci_runtime`: of the containers; None: the engine's own.
        """
        self._stack_of = oci_runtime if any(name in (oci_runtime or "") for name in _OWN_STACKS) else None
        self.resolvers = Resolvers(engine, image=image, node=node)
        self._refusals = Refusals(self._list_counter)
        self._name_server = name_server
        self._engine = engine
        self._ceiling = ceiling
        self._images = images
        self._image = image
        self._node = node
        self._token = token
        self._starts: Counter[str] = Counter()
        """Our own starts that the engine has not reported yet, by container."""
        self._in_force: dict[str, str] = {}
        """Container -> rules to apply whenever it is started."""
        self._removing = TaskSet("egress helpers")

    async def rules_of(self, spec: ContainerSpec, *, group_subnet: str = "") -> tuple[str, list[str]]:
        """Return the rules for `apply`, and `name:address` lines for the container's hosts file: it may have no name
        server.

        The rules are "" if nothing restricts it. `group_subnet`: the range of its services, which it always reaches.

        Raises:
            EgressUnavailable: a host name has no address that a container could reach.
        """
        parties = self._parties(spec.egress, session=spec.restricted or spec.role is Role.SESSION)
        return await self._rules(parties, group_subnet) if parties and spec.network != "none" else ("", [])

    async def change(self, container_id: str, egress: Egress | None) -> None:
        """Change a running session's restrictions. Raises as `apply`; MalformedRequest: it was not made for domains."""
        parties = self._parties(egress, session=True)
        rules = (await self._rules(parties))[0] if parties else REMOVE
        names = resolver_of(rules)
        if await self.resolvers.is_asked_by(container_id):
            if not parties and self._name_server:  # without restrictions: all names, by the host's name server
                names = [self._name_server.for_all]
            await self.resolvers.run(container_id, names)
        elif names:
            raise MalformedRequest(
                "names with * can only be allowed in a box that was made with such a name; make another box"
            )
        before = await self._refusals.count(container_id) or 0
        await self.apply(container_id, rules)
        self._in_force[container_id] = rules
        await self._count(container_id, await self._inspect(container_id), before)

    async def found(self, container_id: str, rules: str, state: dict[str, Any], *, with_shell: bool) -> None:
        """Check a restricted container of a previous server: nobody watched who started it.

        Raises:
            SandboxLost: it ran without rules; it has been killed. EgressUnavailable.
        """
        if not state["Running"]:
            return  # its next start applies the rules
        if datetime.fromisoformat(str(state["FinishedAt"])[:19]).year == 1:  # its first run
            await self._count(container_id, {"State": state})
            return
        if not with_shell:  # we never start those again, and their rules may have changed
            await self.kill(container_id)
            raise SandboxLost(f"the container {container_id[:12]} was started by somebody else, without its rules")
        await self.apply(container_id, rules)
        await self._count(container_id, {"State": state})

    def _parties(self, egress: Egress | None, *, session: bool) -> list[Egress]:
        return [party for party in (self._ceiling if session else None, egress) if party is not None]

    async def _rules(self, parties: Sequence[Egress], group_subnet: str = "") -> tuple[str, list[str]]:
        if self._stack_of:
            raise EgressUnavailable(
                f"a sandbox of the OCI runtime {self._stack_of} has a network stack of its own, which the rules of its"
                " host do not restrict; give it no network, or no rules, or unset SANDBOX_RUNTIME"
            )
        names = sorted({name for party in parties for name in party.names})
        found = dict(zip(names, await asyncio.gather(*map(_addresses, names)), strict=True))
        if self._name_server is None and any(party.domains for party in parties):
            raise EgressUnavailable("a sandbox's rules allow names with *, and SANDBOX_EGRESS_DNS names no name server")
        text = ruleset(parties, found, group_subnet=group_subnet, name_server=self._name_server)
        if len(text) > _MAX_RULES:
            raise EgressUnavailable("the sandbox has too many egress rules; use address ranges")
        return text, [f"{name}:{address}" for name, addresses in found.items() for address in addresses]

    def keep(self, container_id: str, rules: str) -> None:
        """Apply `rules` whenever the container is started, unless rules are known for it; "" for none."""
        if rules:
            self._in_force.setdefault(container_id, rules)

    async def start(self, container_id: str) -> None:
        """Start a created or stopped container; nothing in it ever runs without its restrictions.

        Raises:
            EgressUnavailable, and the errors of a start; then it does not run.
        """
        rules = self._in_force.get(container_id)
        if rules is None:
            await self._engine.call(lambda api: api.start(container_id))
            return
        before = await self._refusals.count(container_id) or 0
        try:
            if self._is_connected(await self._inspect(container_id)):
                await self._engine.call(
                    lambda api: api.disconnect_container_from_network(container_id, self._engine.network, force=True)
                )
            self._starts[container_id] += 1
            await self._engine.call(lambda api: api.start(container_id))
            await self.apply(container_id, rules)
            if names := resolver_of(rules):
                await self.resolvers.run(container_id, names)
            found = await self._inspect(container_id)
            await self._count(container_id, found, before)
            if not self._is_connected(found):
                await self._engine.call(
                    lambda api: api.connect_container_to_network(container_id, self._engine.network)
                )
        except BaseException:
            await asyncio.shield(self.kill(container_id))
            raise

    async def apply(self, container_id: str, rules: str) -> None:
        """Replace all egress rules of a running container by `rules`.

        Raises:
            EgressUnavailable: they were not applied; the previous ones still hold. EngineUnavailable, SandboxLost.
        """
        await self._nft(container_id, rules)

    async def refused(self, container_id: str) -> int | None:
        """See `sandbox.base.Runtime.refused`."""
        counted = await self._refusals.count(container_id)
        if counted is None and self._ceiling and container_id not in self._in_force:  # of a previous server
            with suppress(ServiceError):
                found = await self._inspect(container_id)
                if EGRESS in (found["Config"].get("Labels") or {}):  # else it has no network, so no rules
                    await self._count(container_id, found)
                    counted = await self._refusals.count(container_id)
        return counted

    def close(self) -> None:
        """Stop counting. The rules stay."""
        self._refusals.close()

    async def kill(self, container_id: str) -> None:
        """Kill a container that must not run."""
        with suppress(ServiceError):
            await self._engine.call(lambda api: api.kill(container_id, "KILL"))

    def forget(self, container_id: str) -> None:
        """Forget the rules of a removed container."""
        self._starts.pop(container_id, None)
        self._in_force.pop(container_id, None)
        self._refusals.forget(container_id)
        self.resolvers.forget(container_id)

    async def watch(self) -> None:
        """Kill restricted containers that somebody else starts, because they then have no rules.

        Returns when the engine ends its event stream or does not answer.
        """
        with suppress(ServiceError, OSError):
            await self._listen()

    async def _listen(self) -> None:
        wanted = {"type": ["container"], "event": ["start"], "label": [EGRESS, f"{NODE}={self._node}"]}
        sock, text = await self._engine.hijack("/events?filters=" + quote(dumps(wanted)), method="GET")
        loop = asyncio.get_running_loop()
        with sock:
            while True:
                complete, _, text = text.rpartition(b"\n")
                for started in re.findall(rb'"id":"([0-9a-f]{64})"', complete):
                    await self._started(started.decode())
                piece = await loop.sock_recv(sock, 1 << 16)
                if not piece:
                    return
                text += piece

    async def _started(self, container_id: str) -> None:
        if self._starts[container_id] > 0:
            self._starts[container_id] -= 1
            return
        log.warning("killed a container started by others, so without egress rules", container_id=container_id[:12])
        await self.kill(container_id)
        self._starts.pop(container_id, None)

    async def _inspect(self, container_id: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._engine.call(lambda api: api.inspect_container(container_id))
        return found

    def _is_connected(self, found: dict[str, Any]) -> bool:
        return self._engine.network in found["NetworkSettings"]["Networks"]

    async def _count(self, container_id: str, found: dict[str, Any], before: int = 0) -> None:
        if pid := int(found["State"]["Pid"]):
            await self._refusals.follow(container_id, pid if self._engine.local else 0, before=before)

    async def _list_counter(self, container_id: str) -> int | None:
        with suppress(ServiceError):
            listed = re.search(r"packets (\d+)", await self._nft(container_id, f"list counter inet {TABLE} {COUNTER}"))
            return int(listed[1]) if listed else None
        return None

    async def _nft(self, container_id: str, commands: str) -> str:
        """Return what nft says of `commands`, run in the container's network namespace. Raises as `apply`."""
        try:
            helper = await self._create(container_id, commands)
        except ImageUnavailable:
            await self._pull()
            helper = await self._create(container_id, commands)
        try:
            await self._engine.call(lambda api: api.start(helper))
            ended = await self._engine.call(lambda api: api.wait(helper, timeout=_HELPER_S), timeout_s=_HELPER_S + 5)
            said: bytes = await self._engine.call(lambda api: api.logs(helper, tail=5))
            text = said.decode("utf-8", "replace").strip()[:500]
            if ended["StatusCode"] != 0:
                raise EgressUnavailable(
                    f"the sandbox's egress rules could not be applied: {_NFT} of {self._image} ended"
                    f" with {ended['StatusCode']}: {text}; does the host's kernel have nf_tables?"
                )
            return text
        finally:
            self._removing.start(self._remove(helper))  # takes 50 ms, which no start should wait for

    async def _pull(self) -> None:
        try:
            await self._images.resolve([self._image])
        except ImageUnavailable as e:
            raise EgressUnavailable(
                f"no sandbox with a restricted network can start: {e.detail}; build the image with"
                " `sandbox-server images build egress`, or name one that has nft in SANDBOX_EGRESS_IMAGE"
            ) from e

    async def _create(self, container_id: str, commands: str) -> str:
        labels = {
            NODE: self._node,
            ROLE: Role.PREPARE.value,
            SID: "",
            DEADLINE: (clock.today() + timedelta(seconds=2 * _HELPER_S)).astimezone(UTC).isoformat(),
            TOKEN: self._token,
        }
        created: dict[str, Any] = await self._engine.call(
            lambda api: api.create_container(
                self._image,
                command=[commands],
                entrypoint=[_NFT],
                user="0",
                labels=labels,
                host_config=api.create_host_config(
                    network_mode=f"container:{container_id}",
                    cap_drop=["ALL"],
                    cap_add=["NET_ADMIN"],
                    security_opt=["no-new-privileges"],
                    read_only=True,
                    mem_limit="64m",
                    pids_limit=8,
                    log_config=docker.types.LogConfig(type="json-file"),
                ),
            )
        )
        return str(created["Id"])

    async def _remove(self, helper: str) -> None:
        with suppress(ServiceError):  # otherwise the reaper removes it
            await self._engine.call(lambda api: api.remove_container(helper, force=True, v=True))


async def switch_network(engine: Engine, container_id: str, *, on: bool) -> bool:
    """See `sandbox.base.Runtime.connect`."""
    found: dict[str, Any] = await engine.call(lambda api: api.inspect_container(container_id))
    if found["Config"].get("NetworkDisabled"):
        return not on
    if on != (engine.network in found["NetworkSettings"]["Networks"]):
        await engine.call(
            lambda api: (
                api.connect_container_to_network(container_id, engine.network)
                if on
                else api.disconnect_container_from_network(container_id, engine.network, force=True)
            )
        )
    return True


async def _addresses(name: str) -> list[str]:
    try:
        async with asyncio.timeout(_RESOLVE_S):
            found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError) as e:
        raise EgressUnavailable(f"the host {name} that a sandbox may reach has no address: {e or 'no answer'}") from e
    addresses = _reachable(str(address[0]) for *_, address in found)
    if not addresses:
        raise EgressUnavailable(
            f"the host {name} that a sandbox may reach is this machine's own loopback, which is another one in a"
            " sandbox; name an address that the sandbox's network leads to"
        )
    return addresses


def _reachable(addresses: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(a for a in addresses if not (a.startswith("127.") or a == "::1" or "%" in a)))
