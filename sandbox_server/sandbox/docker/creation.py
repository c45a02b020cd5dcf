"""The engine's arguments for a container: limits, isolation, labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

import docker.types

from sandbox_server.sandbox.base import ContainerSpec, Limits
from sandbox_server.sandbox.bash import boot
from sandbox_server.sandbox.bash.fifos import TARGET
from sandbox_server.sandbox.config import RuntimeConfig
from sandbox_server.sandbox.docker.labels import DEADLINE, EGRESS, GROUP, NODE, ROLE, SID, TOKEN
from sandbox_server.sandbox.docker.resolvers import ADDRESS
from sandbox_server.sandbox.egress import resolver_of

# Root's capabilities that package managers, test suites and git need; no raw sockets, devices, tracing or namespaces.
CAPABILITIES = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "SYS_CHROOT"]

# The hosts file that the engine gives every container connected to a network, `none` included.
_HOSTS = r"""printf '%s\t%s\n' 127.0.0.1 localhost ::1 'localhost ip6-localhost ip6-loopback' \
  fe00::0 ip6-localnet ff00::0 ip6-mcastprefix ff02::1 ip6-allnodes ff02::2 ip6-allrouters >| /etc/hosts
"""


@dataclass(frozen=True, slots=True)
class RuntimeAdditions:
    """What the runtime adds to a specification."""

    config: RuntimeConfig
    token: str
    """The container's secret, see `BashSandbox`."""
    egress: str
    """Its network rules, as the label has them; "" for none."""
    hosts: Sequence[str]
    """Lines of its hosts file, `name:address`."""
    seccomp: Sequence[str]
    """Security options for its system calls."""
    group_endpoint: "NetworkEndpoint | None" = None
    """Where its services are, if it has any."""


@dataclass(frozen=True, slots=True)
class NetworkEndpoint:
    """An address in the network of a sandbox's services."""

    group: str
    network: str
    address: str


NO_NAME_SERVER = "192.0.2.1"
"""An address that no network has (RFC 5737). Otherwise containers in a network of services would use the engine's name
server, which forwards unknown names to the host's."""
NAME_OPTIONS = ("timeout:1", "attempts:1")  # with the defaults, a look-up there takes 20 s


def ulimits(limits: Limits) -> list[Any]:
    """Limits on each process of a container."""
    return [
        docker.types.Ulimit(name="nofile", soft=limits.open_files, hard=limits.open_files),
        docker.types.Ulimit(name="fsize", soft=limits.disk_mb << 20, hard=limits.disk_mb << 20),
        docker.types.Ulimit(name="core", soft=0, hard=0),
    ]


def create(api: Any, spec: ContainerSpec, additions: RuntimeAdditions, folder: Path | None) -> str:
    """Create a container by the SDK's client; return its id.

    `folder`: on the engine's host, with the FIFOs of its shell.
    """
    limits = spec.limits
    # rules would forbid the engine's name server, but are in place only after the start
    nameless = additions.group_endpoint is not None and (spec.network == "none" or bool(additions.egress))
    host = api.create_host_config(
        # a grading's tests may kill everything they can: there bash itself is the init and survives that
        init=spec.with_shell,
        network_mode=additions.group_endpoint.network if additions.group_endpoint else spec.network,
        dns=[ADDRESS] if resolver_of(additions.egress) else [NO_NAME_SERVER] if nameless else None,
        dns_opt=list(NAME_OPTIONS) if nameless else None,
        extra_hosts=list(additions.hosts),
        mem_limit=f"{limits.memory_mb}m",
        memswap_limit=f"{limits.memory_mb}m",
        nano_cpus=int(limits.cpus * 1e9),
        cpu_shares=spec.cpu_shares or None,
        pids_limit=limits.pids,
        ulimits=ulimits(limits),
        cap_drop=["ALL"],
        cap_add=CAPABILITIES,
        # with SELinux, another container's files carry that container's label
        security_opt=[
            *([] if spec.setuid else ["no-new-privileges"]),
            *additions.seccomp,
            *(["label=disable"] if spec.mounts else []),
        ],
        tmpfs={"/run/sandbox": "size=16m,mode=0755"},
        log_config=docker.types.LogConfig(type="none"),
        binds={source: {"bind": target, "mode": "rw"} for source, target in spec.mounts.items()},
        mounts=[docker.types.Mount(TARGET, str(folder), type="bind", read_only=True)] if folder else [],
        runtime=additions.config.oci_runtime,
    )
    # Without the engine's network `none`: a container without any network also gets a namespace with only lo, but
    # starts in less than half the time (111 against 273 ms) and avoids a deadlock when many end at once (20.10:
    # libnetwork's watchLoop and getSvcRecords take the same two locks in opposite order).
    unconnected = spec.network == "none" and additions.group_endpoint is None
    program, *arguments = boot.command(spec, first=_HOSTS if unconnected else "")
    created: dict[str, Any] = api.create_container(
        spec.image,
        command=arguments,
        network_disabled=unconnected,
        networking_config=networking_config(api, additions.group_endpoint) if additions.group_endpoint else None,
        entrypoint=[program],  # Podman takes an empty one to mean the image's own
        user="0",
        working_dir=spec.workdir,
        hostname=additions.config.hostname,
        tty=spec.with_shell,
        stdin_open=spec.with_shell,
        environment=boot.environment(spec),
        labels={
            NODE: additions.config.node,
            ROLE: spec.role.value,
            SID: spec.sid,
            DEADLINE: spec.deadline.astimezone(UTC).isoformat(),
            TOKEN: additions.token,
            **({EGRESS: additions.egress} if additions.egress else {}),
            **({GROUP: additions.group_endpoint.group} if additions.group_endpoint else {}),
        },
        host_config=host,
    )
    return str(created["Id"])


def networking_config(api: Any, endpoint: NetworkEndpoint) -> Any:
    """The networking configuration of a container at `endpoint`."""
    return api.create_networking_config({endpoint.network: api.create_endpoint_config(ipv4_address=endpoint.address)})
