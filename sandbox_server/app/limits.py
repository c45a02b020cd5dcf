"""Limits of containers and boxes, and the engine's configuration, from the settings."""

import json
import os
from pathlib import Path

from sandbox_server.actions.batch import BatchBounds, Batches
from sandbox_server.boxes.commands import CommandBounds
from sandbox_server.boxes.policy import BoxPolicy, BoxSize
from sandbox_server.boxes.snapshotting import SnapshotBounds
from sandbox_server.boxes.templates import TemplateBounds
from sandbox_server.catalogue.instances import Instances
from sandbox_server.images.engine_disk import ImageRules
from sandbox_server.images.preparing import REPOSITORY
from sandbox_server.sandbox.base import Limits
from sandbox_server.sandbox.config import OWN_SECCOMP, RuntimeConfig
from sandbox_server.sandbox.egress import Egress, NameServer, Target
from sandbox_server.sandbox.image_names import tagged
from sandbox_server.sandbox.services import ServiceBounds
from sandbox_server.settings import Settings


def limits_of(settings: Settings) -> Limits:
    """The default limits of a container, for values that its instance does not set."""
    return Limits(
        memory_mb=settings.memory_mb,
        cpus=settings.cpus,
        pids=settings.pids,
        open_files=settings.open_files,
        disk_mb=settings.disk_mb,
    )


def _egress_of(settings: Settings) -> Egress | None:
    """The widest egress allowed to sessions and boxes; None: unrestricted. Raises ValueError for an invalid entry."""
    if settings.box_egress is None:
        return None
    try:
        egress = Egress(tuple(map(Target.parse, settings.box_egress)))
    except ValueError as e:
        raise ValueError(f"SANDBOX_BOX_EGRESS: {e}") from e
    if egress.domains and not settings.egress_dns:
        raise ValueError("SANDBOX_BOX_EGRESS: names with * need SANDBOX_EGRESS_DNS")
    return egress


def _name_server_of(settings: Settings) -> NameServer | None:
    """The name server for names with `*`. Raises ValueError for an invalid address."""
    try:
        return NameServer.parse(settings.egress_dns) if settings.egress_dns else None
    except ValueError as e:
        raise ValueError(f"SANDBOX_EGRESS_DNS: {e}") from e


def _seccomp_of(settings: Settings) -> Path | None:
    """The seccomp profile of containers; None: the engine's. Raises ValueError for a file that is not a profile."""
    if settings.seccomp in ("own", "engine"):
        return OWN_SECCOMP if settings.seccomp == "own" else None
    path = Path(settings.seccomp)
    try:
        profile = json.loads(path.read_bytes())
    except (OSError, ValueError) as e:
        raise ValueError(f"SANDBOX_SECCOMP={path} is neither `own`, `engine` nor a readable JSON file: {e}") from e
    if not (isinstance(profile, dict) and profile.get("defaultAction")):
        raise ValueError(f"SANDBOX_SECCOMP={path} is not a seccomp profile: an object with `defaultAction` is expected")
    return path.absolute()


def _fifos_of(settings: Settings) -> Path | None:
    if settings.fifo_dir == "off":
        return None
    if settings.fifo_dir == "auto":
        return Path("/run/sandbox-server") if os.geteuid() == 0 else (settings.data_dir / "fifos").absolute()
    return Path(settings.fifo_dir).absolute()


def runtime_config(settings: Settings, guest: str) -> RuntimeConfig:
    """The configuration common to all containers; `guest`: name of a command line beside the node's server."""
    return RuntimeConfig(
        node=f"{settings.node_id}+{guest}" if guest else settings.node_id,
        oci_runtime=settings.runtime,
        seccomp=_seccomp_of(settings),
        fifos=_fifos_of(settings),
        boot_concurrency=settings.boots,
        pull=settings.pull == "missing",
        pull_timeout_s=settings.pull_timeout_s,
        egress=_egress_of(settings),
        egress_image=settings.egress_image,
        egress_dns=_name_server_of(settings),
        login_cache=settings.box_login_cache,
        meter_cpu=settings.run_cpu_s > 0,
        busy_cpu_shares=settings.busy_cpu_shares,
        services=ServiceBounds(
            memory_mb=settings.service_memory_mb,
            cpus=settings.service_cpus,
            pids=settings.service_pids,
            volume_mb=settings.service_volume_mb,
            start_s=settings.service_start_s,
            networks=settings.service_networks,
        ),
    )


def batches_of(settings: Settings) -> Batches:
    """The runner of batches of commands, with the bounds from the settings."""
    return Batches(
        BatchBounds(
            parallel=settings.exec_parallel,
            node_parallel=settings.exec_node_parallel,
            commands=settings.exec_commands,
            timeout_s=settings.exec_timeout_s,
            output_bytes=settings.exec_output_bytes,
        )
    )


def command_bounds(settings: Settings) -> CommandBounds:
    """Bounds of the kept output of the commands of boxes and sessions."""
    return CommandBounds(
        output_bytes=int(settings.box_output_mb * 2**20),
        total_bytes=int(settings.box_output_total_mb * 2**20),
        session_s=settings.session_max_s,
    )


def box_policy(settings: Settings, *, cpus: float) -> BoxPolicy:
    """The policy for boxes; `cpus`: the engine's CPUs."""
    return BoxPolicy(
        image_keys=settings.box_image_keys,
        templates=settings.box_templates,
        images=settings.box_images,
        sudo_images=settings.box_sudo_images,
        sizes={name: BoxSize(size.cpus, size.memory_mb, size.disk_mb) for name, size in settings.box_sizes.items()},
        user=settings.box_user,
        default_s=settings.box_default_s,
        max_s=settings.box_max_s,
        paused_max_s=settings.box_paused_max_s,
        network=settings.box_network,
        networks=settings.box_networks,
        create_wait_s=settings.box_create_wait_s,
        login_path=settings.box_login_path,
        timeout_exit=settings.box_timeout_exit,
        domain=settings.box_domain,
        egress_domains=bool(settings.egress_dns),
        limits=limits_of(settings),
        cpus=cpus,
    )


def snapshot_bounds(settings: Settings) -> SnapshotBounds:
    """The bounds on the snapshots of one API key, from the settings."""
    return SnapshotBounds(count=settings.snapshots, total_bytes=int(settings.snapshots_mb * 2**20))


def template_bounds(settings: Settings) -> TemplateBounds:
    """The bounds of templates, from the settings."""
    return TemplateBounds(
        builds=settings.template_builds,
        queue=settings.template_queue,
        build_s=settings.template_build_s,
        ready_s=settings.template_ready_s,
        files_bytes=int(settings.template_files_mb * 2**20),
        files_total_bytes=int(settings.template_files_total_mb * 2**20),
    )


async def in_catalogue(instances: Instances, image: str) -> bool:
    """Whether the image is a task image of the catalogue."""
    return tagged(image) in map(tagged, await instances.images())


def image_rules(settings: Settings) -> ImageRules:
    """The rules for the removal of images, from the settings."""
    boxes = (*settings.box_images, *map(tagged, settings.box_templates.values()))
    return ImageRules(REPOSITORY, settings.pinned_images, pull=settings.pull == "missing", boxes=boxes)
