"""The services of a task as the engine starts them, with their images built or found."""

from dataclasses import replace

from sandbox_server.catalogue.harbor.archives import unpacked
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.services import Health, Service
from sandbox_server.images.built_images import BuiltImages
from sandbox_server.sandbox.base import ContainerSpec, Runtime
from sandbox_server.sandbox.services import HealthCheck, ServiceSpec


async def with_services(
    spec: ContainerSpec, instance: TaskInstance, runtime: Runtime, built: BuiltImages
) -> ContainerSpec:
    """`spec` with the services of a sandbox of `instance`, and with its health check.

    Raises:
        As `service_specs`.
    """
    own = instance.sandbox
    return replace(
        spec,
        services=await service_specs(instance, runtime, built),
        awaits=tuple(own.awaits.items()),
        health=_check(own.health),
    )


async def service_specs(instance: TaskInstance, runtime: Runtime, built: BuiltImages) -> tuple[ServiceSpec, ...]:
    """The services beside a sandbox of `instance`, in the order of their starts; builds images that are missing.

    Raises:
        ImageUnavailable, EngineUnavailable.
    """
    return tuple([await _spec(service, instance, runtime, built) for service in instance.sandbox.services])


async def _spec(service: Service, instance: TaskInstance, runtime: Runtime, built: BuiltImages) -> ServiceSpec:
    if service.build is not None:
        image = await built.image(service.build, f"{instance.instance_id}'s service {service.name}")
    else:
        image = await runtime.images.resolve(service.images)
    return ServiceSpec(
        name=service.name,
        image=image.name,
        aliases=service.aliases,
        hostname=service.hostname,
        command=service.command,
        entrypoint=service.entrypoint,
        env=tuple(service.env.items()),
        workdir=service.workdir,
        user=service.user,
        files=unpacked(service.files),
        volumes=tuple(service.volumes.items()),
        tmpfs=service.tmpfs,
        health=_check(service.health),
        after=tuple(service.after.items()),
        restart=service.restart,
        memory_mb=service.memory_mb,
        cpus=service.cpus,
    )


def _check(health: Health | None) -> HealthCheck | None:
    return HealthCheck(**dict(health)) if health else None
