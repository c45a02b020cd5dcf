"""environment/docker-compose.yaml of a task: the services beside the agent's container, which is the service `main`.

Harbor reads the file as an overlay on its own for `main`. Only keys that are named here are accepted; some of them mean
nothing here and are left out (`ports`: nothing is published). All others, among them whatever reaches the host, are
refused by their names.
"""

import graphlib
import math
import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from sandbox_server.catalogue.harbor import dockerfile
from sandbox_server.catalogue.harbor.archives import Folder
from sandbox_server.catalogue.harbor.interpolation import Interpolation
from sandbox_server.catalogue.services import Condition, Health, ImageBuild, Service

MAIN = "main"
MOST_SERVICES = 8
_MOST_VOLUMES = 16
_LOGS = "harbor-logs:"
"""Value of Harbor's variables for its own log mounts; such mounts are ignored."""
_HARBOR = {
    "CONTEXT_DIR": ".",
    "MAIN_IMAGE_NAME": "harbor-main",
    "PREBUILT_IMAGE_NAME": "harbor-main",
    "HARBOR_CONTAINER_NAME": MAIN,
    "CPUS": "1",
    "MEMORY": "1G",
    **{f"HOST_{name}_PATH": f"{_LOGS}{name}" for name in ("VERIFIER_LOGS", "AGENT_LOGS", "ARTIFACTS")},
    "ENV_VERIFIER_LOGS_PATH": "/logs/verifier",
    "ENV_AGENT_LOGS_PATH": "/logs/agent",
    "ENV_ARTIFACTS_PATH": "/logs/artifacts",
}
"""Variables that Harbor gives to Compose."""
_LEFT_OUT = {"attach", "container_name", "expose", "init", "labels", "logging", "platform", "ports", "profiles"}
_LEFT_OUT |= {"pull_policy", "stdin_open", "stop_grace_period", "stop_signal", "tty"}
_BOTH = {"build", "command", "depends_on", "deploy", "environment", "image", "networks", "volumes", "working_dir"}
_OF_MAIN = _LEFT_OUT | _BOTH | {"cpus", "mem_limit", "mem_reservation", "restart"}
_OF_SERVICE = _LEFT_OUT | _BOTH
_OF_SERVICE |= {"cpus", "entrypoint", "healthcheck", "hostname", "mem_limit", "restart", "tmpfs", "user"}
_WAITS = re.compile(r"(sh|bash|/bin/sh|/bin/bash)? ?(-l?c )?(sleep (infinity|\d+[smhd]?)|tail -f /dev/null)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_TIME = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:([\d.]+)s)?(?:(\d+)ms)?")
_CONDITIONS: dict[str, Condition] = {
    "service_started": "started",
    "service_healthy": "healthy",
    "service_completed_successfully": "completed",
}
_NOT_OVER = ("/proc", "/sys", "/dev")
_OWN_IMAGES = "sandbox-prepared"  # the images of gradings hold tests of other tasks


@dataclass(frozen=True, slots=True)
class ComposeFile:
    """The contents of the file."""

    services: tuple[Service, ...] = ()
    """Without `main`, in start order."""
    awaits: Mapping[str, Condition] = field(default_factory=dict)
    """`depends_on` of `main`."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of `main`."""
    workdir: str = ""
    """Working directory of `main`; "" if the file names none."""
    unsupported: tuple[str, ...] = ()
    """Unsupported keys, a few words each."""


def read(
    text: str, context: str, variables: Mapping[str, str], *, docker_image: str = "", build_timeout_s: float = 600.0
) -> ComposeFile:
    """Read the file.

    `context`: the packed folder `environment`. `variables`: those of the task, for `${NAME}`. `docker_image`: the
    task's prebuilt image, if any. `build_timeout_s`: limit on each image build.

    Raises:
        ValueError: it is not a Compose file.
    """
    try:
        document = yaml.safe_load(text)
        if not isinstance(document, dict) or not isinstance(document.get("services"), dict):
            raise ValueError("it has no mapping `services`")
        document = Interpolation({**variables, **_HARBOR}).of(document)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"docker-compose.yaml: {' '.join(str(error).split())[:200]}") from None
    return _Reading(document, Folder(context), {"harbor-main", docker_image}, build_timeout_s).composed()


class _Reading:
    def __init__(
        self, document: Mapping[str, Any], folder: Folder, main_images: set[str], build_timeout_s: float
    ) -> None:
        self._document = document
        self._folder = folder
        self._main_images = main_images
        self._build_timeout_s = build_timeout_s
        self._refused: list[str] = []
        self._volumes = set[str]()

    def composed(self) -> ComposeFile:
        self._top_level()
        entries = {
            str(name): entry or {}
            for name, entry in self._document["services"].items()
            if not (isinstance(entry, dict) and entry.get("profiles") and name != MAIN)  # not started without a word
        }
        if bad := [
            name
            for name, entry in entries.items()
            if not isinstance(entry, dict) or not _NAME.fullmatch(name) or name == "localhost"
        ]:
            return ComposeFile(unsupported=(f"services {', '.join(map(repr, bad))} that cannot be read",))
        main = entries.pop(MAIN, {})
        if len(entries) > MOST_SERVICES:
            self._refuse(f"{len(entries)} services beside main; {MOST_SERVICES} are possible")
        services = {name: self._guarded(name, self._service, entry) for name, entry in entries.items()}
        env, workdir = self._guarded(MAIN, self._main, main) or ({}, "")
        awaits = self._guarded(MAIN, self._after, main) or {}
        self._one_network({MAIN: main, **entries})
        made = {name: service for name, service in services.items() if service is not None}
        ordered = self._ordered(made, awaits)
        if len(self._volumes) > _MOST_VOLUMES:
            self._refuse(f"{len(self._volumes)} volumes; {_MOST_VOLUMES} are possible")
        return ComposeFile(ordered, awaits, env, workdir, tuple(dict.fromkeys(self._refused)))

    def _refuse(self, what: str) -> None:
        self._refused.append(f"docker-compose.yaml: {what}")

    def _guarded(self, name: str, read: Callable[[str, dict[str, Any]], Any], entry: dict[str, Any]) -> Any:
        try:
            return read(name, entry)
        except (ValueError, TypeError, AttributeError, KeyError, ArithmeticError) as error:
            self._refuse(f"{name}: {error}")
            return None

    def _top_level(self) -> None:
        for key in self._document:
            if key not in ("services", "volumes", "networks", "version", "name") and not str(key).startswith("x-"):
                self._refuse(str(key))
        for kind, allowed in (("volumes", {"name"}), ("networks", {"name", "internal", "driver"})):
            for name, entry in (self._document.get(kind) or {}).items():
                for key in entry or {}:
                    plain = key in allowed or (key == "driver" and entry[key] == "local")
                    if not plain or (kind == "networks" and entry.get("driver", "bridge") != "bridge"):
                        self._refuse(f"{kind} {name}: {key}")

    def _known(self, name: str, entry: Mapping[str, Any], keys: Iterable[str]) -> None:
        for key in entry:
            if key not in keys and not str(key).startswith("x-"):
                self._refuse(f"{name}: {key}")

    # ---- the agent's container

    def _main(self, name: str, entry: dict[str, Any]) -> tuple[dict[str, str], str]:
        self._known(name, entry, _OF_MAIN)
        build = entry.get("build") or "."
        build = build if isinstance(build, dict) else {"context": build}
        plain = posixpath.normpath(str(build.get("context", "."))) == "." and build.get("dockerfile") in (
            None,
            "Dockerfile",
        )
        if not plain or set(build) - {"context", "dockerfile"}:
            self._refuse(f"{name}: a build of another image than environment/Dockerfile's")
        if "build" not in entry and entry.get("image", "harbor-main") not in self._main_images:
            self._refuse(f"{name}: image {entry['image']} (docker_image in task.toml names one)")
        if command := entry.get("command"):
            said = command if isinstance(command, str) else " ".join(map(str, command))
            if not _WAITS.fullmatch(said):
                self._refuse(f"{name}: command, which would not be run")
        for mount in entry.get("volumes") or ():
            source = mount.get("source", "") if isinstance(mount, dict) else str(mount)
            if not str(source).startswith(_LOGS):
                self._refuse(f"{name}: the volume {str(source)[:80]}, as nothing of it could be graded")
        workdir = posixpath.normpath(str(entry["working_dir"])) if entry.get("working_dir") else ""
        if workdir and not workdir.startswith("/"):
            self._refuse(f"{name}: working_dir {workdir}")
        return _environment(entry.get("environment")), workdir

    # ---- a service

    def _service(self, name: str, entry: dict[str, Any]) -> Service:
        self._known(name, entry, _OF_SERVICE)
        build, images = self._image(name, entry)
        volumes, files = self._mounts(name, entry.get("volumes") or ())
        memory, cpus = _limits(entry)
        networks = entry.get("networks")
        aliases = [
            alias
            for network in (networks.values() if isinstance(networks, dict) else ())
            for alias in (network or {}).get("aliases", ())
        ]
        aliases += [str(entry[key]) for key in ("container_name", "hostname") if entry.get(key)]
        if bad := [alias for alias in aliases if not _NAME.fullmatch(str(alias)) or alias in (MAIN, "localhost")]:
            self._refuse(f"{name}: the host name {bad[0]!r}")
        tmpfs = entry.get("tmpfs") or ()
        return Service(
            name=name,
            images=images,
            build=build,
            aliases=tuple(dict.fromkeys(alias for alias in map(str, aliases) if alias != name)),
            hostname=str(entry.get("hostname") or ""),
            command=_argv(entry.get("command")),
            entrypoint=_argv(entry.get("entrypoint")),
            env=_environment(entry.get("environment")),
            workdir=str(entry.get("working_dir") or ""),
            user=str(entry["user"]) if entry.get("user") is not None else "",
            files=files,
            volumes=volumes,
            tmpfs=tuple(
                _target(str(path).partition(":")[0]) for path in ([tmpfs] if isinstance(tmpfs, str) else tmpfs)
            ),
            health=_health(entry.get("healthcheck")),
            after=self._after(name, entry),
            restart=str(entry.get("restart") or "no") not in ("no", "False"),
            memory_mb=memory,
            cpus=cpus,
        )

    def _image(self, name: str, entry: Mapping[str, Any]) -> tuple[ImageBuild | None, tuple[str, ...]]:
        build = entry.get("build")
        if build is None:
            image = str(entry.get("image") or "")
            if not image or image == "harbor-main" or image.rpartition("/")[2].startswith(_OWN_IMAGES):
                raise ValueError(f"its image is {image!r}")
            return None, (image,)
        build = build if isinstance(build, dict) else {"context": build}
        self._known(f"{name}: build", build, ("context", "dockerfile"))
        context = self._folder.below(_inside(str(build.get("context") or ".")))
        file = _inside(str(build.get("dockerfile") or "Dockerfile"))
        if (text := context.text(file)) is None:
            raise ValueError(f"its build context has no {file}")
        for what in dockerfile.read(text).unbuildable:
            self._refuse(f"{name}: {what}")
        made = ImageBuild(context=context.packed(), dockerfile=file, timeout_s=self._build_timeout_s)
        return made, (made.image,)

    def _mounts(self, name: str, entries: Sequence[Any]) -> tuple[dict[str, str], str]:
        """Volumes of a service, and the mounted files of the task as an archive to extract at /."""
        volumes: dict[str, str] = {}
        files: dict[str, str] = {}
        for number, entry in enumerate(entries):
            kind, source, target = _mount(entry)
            if source.startswith((".", _LOGS)) or kind == "bind":
                if source.startswith(("/", "~", _LOGS)):
                    self._refuse(f"{name}: the bind mount of {source}")
                else:
                    files[_target(target)] = _inside(source)
            elif source.startswith(("/", "~")) or not (source == "" or _NAME.fullmatch(source)):
                self._refuse(f"{name}: the bind mount of {source}")
            else:
                volume = source or f"own-{name}-{number}"
                volumes[_target(target)] = volume
                self._volumes.add(volume)
        return volumes, self._folder.placed(files) if files else ""

    def _after(self, name: str, entry: Mapping[str, Any]) -> dict[str, Condition]:
        wanted = entry.get("depends_on") or {}
        if not isinstance(wanted, dict):
            wanted = {str(other): {} for other in wanted}
        found: dict[str, Condition] = {}
        for other, how in wanted.items():
            condition = (how or {}).get("condition", "service_started")
            if condition not in _CONDITIONS or set(how or ()) - {"condition", "restart", "required"}:
                raise ValueError(f"depends_on {other}: {how}")
            found[str(other)] = _CONDITIONS[condition]
        return found

    def _ordered(self, services: Mapping[str, Service], awaits: Iterable[str]) -> tuple[Service, ...]:
        wanted = {name: set(service.after) for name, service in services.items()}
        for name, others in {**wanted, MAIN: set(awaits)}.items():
            for other in others - services.keys():
                self._refuse(f"{name}: depends_on {other}")
        try:
            order = list(graphlib.TopologicalSorter(wanted).static_order())
        except graphlib.CycleError as error:
            self._refuse(f"depends_on in a circle: {', '.join(map(str, error.args[1]))}")
            return ()
        return tuple(services[name] for name in order if name in services)

    def _one_network(self, entries: Mapping[str, dict[str, Any]]) -> None:
        used = set()
        for name, entry in entries.items():
            networks = entry.get("networks") or ("default",)
            used.add(frozenset(map(str, networks)))
            for network in networks.values() if isinstance(networks, dict) else ():
                self._known(f"{name}: networks", network or {}, ("aliases",))
        if len(used) > 1:
            self._refuse("networks that keep services apart")


def _environment(said: Any) -> dict[str, str]:
    if isinstance(said, dict):
        pairs = [(str(name), value) for name, value in said.items()]
    else:
        split = [str(entry).partition("=") for entry in said or ()]
        pairs = [(name, value if equals else None) for name, equals, value in split]
    if missing := next((name for name, value in pairs if value is None), None):
        raise ValueError(f"environment {missing}, from the host, which no server has")
    return {name: _scalar(value) for name, value in pairs}


def _scalar(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _argv(said: Any) -> tuple[str, ...] | None:
    if said is None:
        return None
    return tuple(shlex.split(said)) if isinstance(said, str) else tuple(map(_scalar, said))


def _health(said: Any) -> Health | None:
    if said is None:
        return None
    if unknown := set(said) - {"test", "interval", "timeout", "retries", "start_period", "start_interval"}:
        raise ValueError(f"healthcheck {', '.join(sorted(map(str, unknown)))}")
    test = said["test"]
    kind, *words = ["CMD-SHELL", test] if isinstance(test, str) else list(map(str, test))
    if kind not in ("CMD", "CMD-SHELL") or not words:
        raise ValueError(f"healthcheck test {kind}")
    argv = ("/bin/sh", "-c", words[0]) if kind == "CMD-SHELL" else tuple(words)
    # it runs until it first succeeds, so a long interval would only delay the start
    interval_s = min(max(_seconds(said.get("interval", "1s")), 0.2), 1.0)
    return Health(test=argv, interval_s=interval_s, timeout_s=max(_seconds(said.get("timeout", "30s")), 0.2))


def _seconds(said: Any) -> float:
    found = _TIME.fullmatch(str(said))
    if found is None or not str(said):
        raise ValueError(f"{said!r} is no duration")
    hours, minutes, seconds, milliseconds = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000


def _limits(entry: Mapping[str, Any]) -> tuple[int | None, float | None]:
    """Memory in MB and CPUs."""
    deploy = entry.get("deploy") or {}
    resources = deploy.get("resources") or {}
    if set(deploy) - {"resources"} or set(resources) - {"limits", "reservations"}:
        raise ValueError("deploy other than resources")
    if "devices" in (resources.get("reservations") or {}):
        raise ValueError("deploy.resources.reservations.devices")
    limits = resources.get("limits") or {}
    memory, cpus = limits.get("memory", entry.get("mem_limit")), limits.get("cpus", entry.get("cpus"))
    if cpus is not None and not 0 < float(cpus) < math.inf:  # NaN too
        raise ValueError(f"{cpus!r} is not a number of CPUs")
    return (None if memory is None else _mb(str(memory))), (None if cpus is None else float(cpus))


def _mb(said: str) -> int:
    found = re.fullmatch(r"([\d.]+)\s*([kmg]?)(i?b)?", said.lower())
    if found is None:
        raise ValueError(f"{said!r} is not a size of memory")
    return max(16, int(float(found[1]) * {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}[found[2]]) >> 20)


def _mount(entry: Any) -> tuple[str, str, str]:
    """(type, source, target)."""
    if isinstance(entry, dict):
        if unknown := set(entry) - {"type", "source", "target", "read_only"}:
            raise ValueError(f"volumes {', '.join(sorted(map(str, unknown)))}")
        kind = str(entry.get("type", "volume"))
        if kind not in ("volume", "bind"):
            raise ValueError(f"volumes of type {kind}")
        return kind, str(entry.get("source") or ""), str(entry["target"])
    source, colon, rest = str(entry).partition(":")
    if source == _LOGS.removesuffix(":"):
        raise ValueError("a mount of Harbor's logs")
    return ("", source, rest.partition(":")[0]) if colon else ("volume", "", source)


def _target(path: str) -> str:
    whole = posixpath.normpath(path)
    if not whole.startswith("/") or whole in ("/", "//") or whole.startswith(_NOT_OVER):
        raise ValueError(f"a volume at {path!r}")
    return whole


def _inside(path: str) -> str:
    """A normalised path below `environment`. Raises ValueError: it leads outside."""
    whole = posixpath.normpath(path)
    if "://" in path or whole.startswith(("/", "..", "~")):
        raise ValueError(f"{path} is outside of the task")
    return whole
