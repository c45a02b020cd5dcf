"""What a container may use and a box may be, as the settings say."""

from sandbox_server.actions.batch import BatchBounds, Batches
from sandbox_server.catalogue.instances import Instances
from sandbox_server.sandbox.base import Limits
from sandbox_server.sandbox.image_names import tagged
from sandbox_server.sessions.box_policy import BoxPolicy, BoxSize
from sandbox_server.sessions.engine_disk import ImageRules
from sandbox_server.sessions.preparing import REPOSITORY
from sandbox_server.settings import Settings


def limits_of(settings: Settings) -> Limits:
    """What a container may use where its instance says nothing."""
    return Limits(
        memory_mb=settings.memory_mb,
        cpus=settings.cpus,
        pids=settings.pids,
        open_files=settings.open_files,
        disk_mb=settings.disk_mb,
    )


def batches_of(settings: Settings) -> Batches:
    """Runs batches of commands as the settings say."""
    return Batches(
        BatchBounds(
            parallel=settings.exec_parallel,
            node_parallel=settings.exec_node_parallel,
            commands=settings.exec_commands,
            timeout_s=settings.exec_timeout_s,
            output_bytes=settings.exec_output_bytes,
        )
    )


def box_policy(settings: Settings, *, cpus: float) -> BoxPolicy:
    """What boxes may be; `cpus` is what the engine has."""
    return BoxPolicy(
        image_keys=settings.box_image_keys,
        templates=settings.box_templates,
        images=settings.box_images,
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
        limits=limits_of(settings),
        cpus=cpus,
    )


async def in_catalogue(instances: Instances, image: str) -> bool:
    """Whether the image is one of a task's."""
    return tagged(image) in map(tagged, await instances.images())


def image_rules(settings: Settings) -> ImageRules:
    """Which images may go, as the settings say."""
    boxes = (*settings.box_images, *map(tagged, settings.box_templates.values()))
    return ImageRules(REPOSITORY, settings.pinned_images, pull=settings.pull == "missing", boxes=boxes)
