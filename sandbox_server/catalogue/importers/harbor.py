"""Harbor's tasks (terminal-bench 2 and its registry), as `catalogue.harbor.folders` reads them."""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence

from sandbox_server.catalogue.harbor import compose, dockerfile
from sandbox_server.catalogue.harbor.archives import MOST_BYTES
from sandbox_server.catalogue.harbor.compose import MAIN
from sandbox_server.catalogue.harbor.config import Config, Environment, Healthcheck, resolved, user_name
from sandbox_server.catalogue.harbor.folders import COMPOSE, CONFIG, ROW, STEP
from sandbox_server.catalogue.harbor.steps import steps_of
from sandbox_server.catalogue.instance import Artifact, Collect, HarborGrader, SandboxSpec, TaskInstance
from sandbox_server.catalogue.rows import OldRowConverter, SourceRow
from sandbox_server.catalogue.services import Health, ImageBuild, McpServer
from sandbox_server.catalogue.steps import Step

ARTIFACTS = "/logs/artifacts"
"""Carried for every task, as Harbor does."""
_NEVER = ("/tests", "/logs/verifier", "/solution", "/proc", "/sys", "/dev", "/run/sandbox")
"""Paths that no carried one may hold or lie in."""
_SHORTEST_S = 0.2  # between two health checks
_CANARY = re.compile(r"(<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)


class HarborImporter:
    """Recognised by its column, which `instances import DIR` makes of a task folder."""

    general = False

    def matches(self, row: Mapping[str, object]) -> bool:
        """See `Importer`."""
        return ROW in row and "instance_id" in row

    def convert(self, rows: Sequence[SourceRow], converter: OldRowConverter) -> Iterator[TaskInstance]:
        """See `Importer`; a task that asks for what is not supported is refused, with all that it asks for."""
        return (_instance(row) for row in rows)


def _instance(row: SourceRow) -> TaskInstance:
    content = {name: value for name, value in row.mapping(ROW).items() if isinstance(value, str)}
    own_id = row.text("instance_id")
    carry = row.names("carry")
    try:
        config = Config.read(content.get(CONFIG, ""))
        if not config.steps:
            return _Task(content, config, own_id, carry, row.sha256).instance()
        number = row.fields.get(STEP, 0)
        if not isinstance(number, int):
            raise ValueError(f"{STEP} is no number")
        return _steps(config, content, own_id, carry, row.sha256)[number]
    except ValueError as error:  # pydantic's own errors are ValueErrors too, and name the field
        raise row.rejected(f"{own_id}: {error}") from None


def _steps(
    config: Config, content: Mapping[str, str], own_id: str, carry: Sequence[str], sha256: str
) -> list[TaskInstance]:
    """All steps of a task, because it is imported with all of them or not at all."""
    steps = list(steps_of(config, content))
    tasks = [_Task(one.content, one.config, own_id, carry, sha256).instance() for one in steps]
    if tasks[0].sandbox.services:
        raise ValueError("not supported: [[steps]] with services, whose state would not reach the next step")
    ids = [tasks[0].instance_id, *(f"{tasks[0].instance_id}/{one.section.name}" for one in steps[1:])]
    found = []
    for number, (one, task, own) in enumerate(zip(steps, tasks, ids, strict=True), start=1):
        least = one.section.min_reward
        step = Step(
            name=one.section.name,
            number=number,
            of=len(ids),
            before="" if number == 1 else ids[number - 2],
            next="" if number == len(ids) else ids[number],
            strategy=config.multi_step_reward_strategy or "mean",
            kept=_kept(task),
            min_reward={"reward": least} if isinstance(least, float) else least or {},
            uploads=one.uploads,
            health=_health(one.section.healthcheck),
        )
        found.append(TaskInstance(**{**dict(task), "instance_id": own, "step": step}))
    return found


def _kept(task: TaskInstance) -> tuple[str, ...]:
    """The work directory, if it is not graded: the next step needs it all the same."""
    workdir = task.sandbox.workdir
    graded = workdir == "/" or any(workdir == root or _below(workdir, root) for root in task.carried)
    return () if graded else (workdir,)


class _Task:
    def __init__(
        self, content: Mapping[str, str], config: Config, own_id: str, carry: Sequence[str], sha256: str
    ) -> None:
        self.content = content
        self.config = config
        self.own_id = config.task.name if config.task else own_id
        self.carry = carry
        self.sha256 = sha256

    def instance(self) -> TaskInstance:
        config = self.config
        separate = config.verifier.separate
        env = resolved(config.environment.env, "[environment.env]")
        composed = self._composed(env)
        network = config.agent.network or config.environment.network
        unsupported = [*composed.unsupported, *config.unsupported(), *self._unsupported("environment")]
        if separate:
            unsupported += self._unsupported("tests")
        services = {MAIN, *(service.name for service in composed.services)}
        unsupported += [f"the service {name!r}, which does not exist" for name in sorted(config.services - services)]
        if unsupported:
            raise ValueError(f"not supported: {'; '.join(unsupported)}")
        workdir = composed.workdir or self._workdir(config.environment, "environment")
        grader = self._grader(workdir, separate=separate)
        self._check_volumes(grader.carried)
        images, build = self._image(config.environment, "environment")
        instance = TaskInstance(
            instance_id=self.own_id,
            dataset="harbor",
            repo=self.own_id,
            version=(config.task.version or "") if config.task else "",
            language="",
            problem_statement=without_canary(self.content.get("instruction.md", "")),
            sandbox=SandboxSpec(
                images=images,
                build=build,
                workdir=workdir,
                user=self._user(config.agent.user, "agent", config.environment, "environment"),
                env={**composed.env, **env},
                services=composed.services,
                awaits=dict(composed.awaits),
                mcp_servers=tuple(
                    McpServer(**one.model_dump(exclude_none=True)) for one in config.environment.mcp_servers
                ),
                skills_dir=config.environment.skills_dir or "",
                health=_health(config.environment.healthcheck),
                network=network.kind,
                allowed=network.allowed,
                **config.environment.size,
            ),
            grader=grader,
            eval_timeout_s=config.verifier.timeout_sec,
            row_sha256=self.sha256,
        )
        if composed.services and len(instance.model_dump_json()) > MOST_BYTES:
            raise ValueError(f"with its services it takes more than {MOST_BYTES >> 20} MiB; use prebuilt images")
        return instance

    def _composed(self, env: Mapping[str, str]) -> compose.ComposeFile:
        text = self.content.get(COMPOSE)
        if text is None:
            return compose.ComposeFile()
        own = self.config.environment
        image, timeout_s = own.docker_image or "", own.build_timeout_sec
        return compose.read(text, self.content["environment"], env, docker_image=image, build_timeout_s=timeout_s)

    def _grader(self, workdir: str, *, separate: bool) -> HarborGrader:
        config, own = self.config, self.config.verifier.environment
        carried = self._carried(workdir, separate=separate)
        images: tuple[str, ...] = ()
        build, folder, bundled = None, "", False
        verifier = own or config.environment.model_copy(update={"docker_image": None, "workdir": None})
        if separate and (verifier.docker_image or "tests/Dockerfile" in self.content):
            images, build = self._image(verifier, "tests")
            folder, bundled = self._workdir(verifier, "tests"), True
        network = config.verifier.network or verifier.network
        return HarborGrader(
            tests="" if bundled else self.content.get("tests", ""),
            carried=carried,
            images=images,
            build=build,
            workdir=folder,
            user=self._user(
                config.verifier.user,
                "verifier",
                *((verifier, "tests") if bundled else (config.environment, "environment")),
            ),
            collect=self._collect(separate=separate),
            artifacts=self._artifacts(carried) if separate else (),
            env=resolved({**(own.env if own else {}), **config.verifier.env}, "[verifier.env]"),
            network=network.kind,
            allowed=network.allowed,
            services=not separate,
            solution=self.content.get("solution", ""),
            solution_env=resolved(config.solution.env, "[solution.env]"),
        )

    def _collect(self, *, separate: bool) -> tuple[Collect, ...]:
        """In a shared grading no test can see what happens in a service of the session, as in Harbor."""
        return tuple(
            Collect(
                command=one.command,
                timeout_s=one.timeout_sec,
                service="" if one.service == MAIN else one.service,
                user=user_name(one.user) if one.service == MAIN else "" if one.user is None else str(one.user),
            )
            for one in self.config.verifier.collect
            if separate or one.service == MAIN
        )

    def _artifacts(self, carried: Sequence[str]) -> tuple[Artifact, ...]:
        found: list[Artifact] = []
        for one in self.config.sources(other=True):
            artifact = Artifact(service=one.service or "", path=posixpath.normpath(one.source))
            taken = [*carried, *(other.path for other in found)]
            if _forbidden(artifact.path) or any(
                _below(artifact.path, path) or _below(path, artifact.path) or path == artifact.path for path in taken
            ):
                where = f"{artifact.path} of the service {artifact.service!r}"
                raise ValueError(f"{where} cannot be carried into the grading: it overlaps {(*taken, *_NEVER)}")
            found.append(artifact)
        return tuple(found)

    def _carried(self, workdir: str, *, separate: bool) -> tuple[str, ...]:
        declared = [posixpath.join(workdir, entry.source) for entry in self.config.sources()]
        roots = [*([] if separate or workdir == "/" else [workdir]), *declared, *self.carry, ARTIFACTS]
        roots = [posixpath.normpath(root) for root in roots]
        if bad := next((root for root in roots if _forbidden(root)), ""):
            raise ValueError(f"{bad} cannot be carried into the grading: it is, holds or lies in one of {_NEVER}")
        if workdir == "/" and len(set(roots)) == 1:
            raise ValueError("its work directory is /, and it names no artifacts: nothing of the agent could be graded")
        return tuple(sorted(root for root in set(roots) if not any(_below(root, other) for other in roots)))

    def _image(self, environment: Environment, folder: str) -> tuple[tuple[str, ...], ImageBuild | None]:
        if environment.docker_image:
            return (environment.docker_image,), None
        if f"{folder}/Dockerfile" not in self.content:
            raise ValueError(f"it has neither {folder}/Dockerfile nor a docker_image")
        build = ImageBuild(context=self.content[folder], timeout_s=environment.build_timeout_sec)
        return (build.image,), build

    def _workdir(self, environment: Environment, folder: str) -> str:
        named = environment.workdir or dockerfile.read(self.content.get(f"{folder}/Dockerfile", "")).workdir
        if named is None and folder == "tests" and not environment.docker_image:
            return "/"  # as in most base images
        if not named or not named.startswith("/"):
            section = "environment" if folder == "environment" else "verifier.environment"
            where = f"give [{section}] workdir in task.toml"
            raise ValueError(f"{folder}/Dockerfile has no WORKDIR that can be told; {where}")
        return posixpath.normpath(named)

    def _user(self, said: str | int | None, section: str, environment: Environment, folder: str) -> str:
        """The user of a phase: the one that it names, else the image's, as far as the task's own Dockerfile says it."""
        if said is None and not environment.docker_image:
            said = dockerfile.read(self.content.get(f"{folder}/Dockerfile", "")).user
            if said == "":
                raise ValueError(
                    f"{folder}/Dockerfile has a USER that cannot be told; give [{section}] user in task.toml"
                )
        return user_name(said)

    def _check_volumes(self, carried: Sequence[str]) -> None:
        """Raise ValueError if work could lie in a volume of the image, which belongs to one container alone."""
        if self.config.environment.docker_image:
            return
        for path in dockerfile.read(self.content.get("environment/Dockerfile", "")).volumes:
            if "$" in path or any(path == root or _below(path, root) or _below(root, path) for root in carried):
                raise ValueError(
                    f"not supported: VOLUME {path} in environment/Dockerfile, because no grading sees what changes"
                    " there; remove that line"
                )

    def _unsupported(self, folder: str) -> list[str]:
        own = self.config.environment if folder == "environment" else self.config.verifier.environment
        found = [
            f"{name} (several containers)"
            for name in self.content
            if name.startswith(f"{folder}/") and "compose" in name and name != COMPOSE
        ]
        if own is None or not own.docker_image:
            found += dockerfile.read(self.content.get(f"{folder}/Dockerfile", "")).unsupported
        return found


def without_canary(text: str) -> str:
    """An instruction without the lines at its top that mark benchmark data, which agents are not shown."""
    lines = text.split("\n")
    first = 0
    while first < len(lines) and _CANARY.fullmatch(lines[first].strip()):
        first += 1
    while first < len(lines) and not lines[first].strip():
        first += 1
    return "\n".join(lines[first:])


def _health(said: Healthcheck | None) -> Health | None:
    if said is None:
        return None
    return Health(
        test=("bash", "-c", said.command),
        interval_s=max(said.interval_sec, _SHORTEST_S),
        timeout_s=said.timeout_sec,
        retries=said.retries,
        start_period_s=said.start_period_sec,
        start_interval_s=max(said.start_interval_sec, _SHORTEST_S),
    )


def _below(path: str, other: str) -> bool:
    return path != other and path.startswith(f"{other.rstrip('/')}/")


def _forbidden(root: str) -> bool:
    return not root.startswith("/") or any(
        root == never or _below(root, never) or _below(never, root) for never in _NEVER
    )


IMPORTER = HarborImporter()
