"""The engine's arguments for a container: limits, isolation, labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

import docker.types

from sandbox_server.sandbox.base import ContainerSpec
from sandbox_server.sandbox.bash import boot
from sandbox_server.sandbox.bash.fifos import TARGET
from sandbox_server.sandbox.config import RuntimeConfig
from sandbox_server.sandbox.docker.labels import DEADLINE, EGRESS, NODE, ROLE, SID, TOKEN

# Root's capabilities that package managers, test suites and git need; no raw sockets, devices, tracing or namespaces.
_CAPABILITIES = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "SYS_CHROOT"]

# The hosts file that the engine gives every container connected to a network, `none` included.
_HOSTS = r"""printf '%s\t%s\n' 127.0.0.1 localhost ::1 'localhost ip6-localhost ip6-loopback' \
  fe00::0 ip6-localnet ff00::0 ip6-mcastprefix ff02::1 ip6-allnodes ff02::2 ip6-allrouters >| /etc/hosts
"""


@dataclass(frozen=True, slots=True)
class Own:
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


def create(api: Any, spec: ContainerSpec, own: Own, folder: Path | None) -> str:
    """Create a container by the SDK's client; return its id.

    `folder`: on the engine's host, with the FIFOs of its shell.
    """
    limits = spec.limits
    host = api.create_host_config(
        # a grading's tests may kill everything they can: there bash itself is the init and survives that
        init=spec.with_shell,
        network_mode=spec.network,
        extra_hosts=list(own.hosts),
        mem_limit=f"{limits.memory_mb}m",
        memswap_limit=f"{limits.memory_mb}m",
        nano_cpus=int(limits.cpus * 1e9),
        cpu_shares=spec.cpu_shares or None,
        pids_limit=limits.pids,
        ulimits=[
            docker.types.Ulimit(name="nofile", soft=limits.open_files, hard=limits.open_files),
            docker.types.Ulimit(name="fsize", soft=limits.disk_mb << 20, hard=limits.disk_mb << 20),
            docker.types.Ulimit(name="core", soft=0, hard=0),
        ],
        cap_drop=["ALL"],
        cap_add=_CAPABILITIES,
        # with SELinux, another container's files carry that container's label
        security_opt=[
            *([] if spec.setuid else ["no-new-privileges"]),
            *own.seccomp,
            *(["label=disable"] if spec.mounts else []),
        ],
        tmpfs={"/run/sandbox": "size=16m,mode=0755"},
        log_config=docker.types.LogConfig(type="none"),
        binds={source: {"bind": target, "mode": "rw"} for source, target in spec.mounts.items()},
        mounts=[docker.types.Mount(TARGET, str(folder), type="bind", read_only=True)] if folder else [],
        runtime=own.config.oci_runtime,
    )
    # Without the engine's network `none`: a container without any network also gets a namespace with only lo, but
    # starts in less than half the time (111 against 273 ms) and avoids a deadlock when many end at once (20.10:
    # libnetwork's watchLoop and getSvcRecords take the same two locks in opposite order).
    unconnected = spec.network == "none"
    program, *arguments = boot.command(spec, first=_HOSTS if unconnected else "")
    created: dict[str, Any] = api.create_container(
        spec.image,
        command=arguments,
        network_disabled=unconnected,
        entrypoint=[program],  # Podman takes an empty one to mean the image's own
        user="0",
        working_dir=spec.workdir,
        hostname=own.config.hostname,
        tty=spec.with_shell,
        stdin_open=spec.with_shell,
        environment=boot.environment(spec),
        labels={
            NODE: own.config.node,
            ROLE: spec.role.value,
            SID: spec.sid,
            DEADLINE: spec.deadline.astimezone(UTC).isoformat(),
            TOKEN: own.token,
            **({EGRESS: own.egress} if own.egress else {}),
        },
        host_config=host,
    )
    return str(created["Id"])
