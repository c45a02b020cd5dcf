"""What the end of capture.bash means: a patch, the policy's doing, or a fault of the service."""

from types import SimpleNamespace
from typing import cast

import pytest

from sandbox_server.catalogue.instance import Collect, HarborGrader, SandboxSpec, TaskInstance
from sandbox_server.errors import ImageUnavailable, InfrastructureError, SandboxDiskFull, SandboxLost
from sandbox_server.sandbox.base import ContainerSpec, ExecResult, Output, Runtime
from sandbox_server.sandbox.inspector import ContainerDetails
from sandbox_server.scoring.captures import Captures, _Failed

DIFF = b"diff --git a/x b/x\n"


def _captures() -> Captures:
    return Captures(cast(Runtime, SimpleNamespace(inspector=None)), timeout_s=7, max_bytes=1 << 20, cpu_shares=256)


def _end(code: int | None = 0, stderr: str = "", *, dropped: int = 0) -> ExecResult:
    return ExecResult(
        code, Output(DIFF, b"tail" if dropped else b"", dropped), Output(stderr.encode()), code is None, 1.0
    )


@pytest.mark.parametrize(
    ("end", "diff", "cause"),
    [
        (_end(), DIFF, ""),
        (_end(0, "warning: something\n"), DIFF, ""),
        (_end(0, "no-git\n"), DIFF, "removed .git"),
        (_end(0, "hidden 2 (a.dat, b.dat)\n"), DIFF, "new files, 2 (a.dat, b.dat)"),
        (_end(0, "error: x\npartial\nno-git\n"), DIFF, "could not be read and are left out"),
        (_end(0, "left out: /a -> /b\n"), DIFF, "links lead to what is not taken"),
        (_end(0, dropped=5 << 20), None, "5 MB is larger than SANDBOX_MAX_PATCH_MB"),
        (_end(4), None, "removed the work tree /testbed"),
    ],
)
def test_what_is_taken(end: ExecResult, diff: bytes | None, cause: str) -> None:
    """A patch that was cut short would be graded as if it were whole, or a whole one be dropped."""
    taken = _captures()._of(end, "/testbed")
    assert taken.diff == diff and cause in taken.cause and bool(cause) == bool(taken.cause)


@pytest.mark.parametrize(
    ("end", "error", "why"),
    [
        (_end(5), SandboxDiskFull, "free space"),
        (_end(3), ImageUnavailable, "no base"),
        (_end(6, "fatal: bad index"), _Failed, "ended with 6: fatal: bad index"),
        (_end(None), _Failed, "7 s"),
    ],
)
def test_what_is_no_patch(end: ExecResult, error: type[Exception], why: str) -> None:
    """A full disk of the host would be an empty patch: a 0.0 that the policy did not earn."""
    with pytest.raises(error, match=why) as raised:
        _captures()._of(end, "/testbed")
    assert getattr(raised.value, "timed_out", False) == end.timed_out


class Engine:
    """Replaces the engine: the container's state, and what each reading of its files gives."""

    sees_files = True

    def __init__(
        self,
        *ends: ExecResult,
        seen: tuple[ContainerDetails | Exception, ...] = (),
        frozen: ContainerDetails | None = None,
    ) -> None:
        self.inspector = self
        self._ends = list(ends)
        self._seen = list(seen)
        self._frozen = frozen or STOPPED
        self.bounds: list[float] = []
        self.made = 0
        self.removed = 0

    async def inspect(self, container_id: str) -> ContainerDetails:
        seen = self._seen.pop(0) if self._seen else STOPPED
        if isinstance(seen, Exception):
            raise seen
        return seen

    async def freeze_or_kill(self, container_id: str) -> ContainerDetails:
        return self._frozen

    async def create_reader(self, container_id: str, spec: ContainerSpec, *, folder: str) -> "Engine":
        return await self.create(spec)

    async def create(self, spec: ContainerSpec) -> "Engine":
        self.made += 1
        return self

    async def attach(self, container_id: str) -> "Engine":
        return self

    async def remove(self, container_id: str) -> None:
        self.removed += 1

    async def cpu_times(self, container_ids: list[str]) -> dict[str, float]:
        return dict.fromkeys(container_ids, 8.0)  # none was kept waiting

    async def exec(self, argv: list[str], *, timeout_s: float, **how: object) -> ExecResult:
        self.bounds.append(timeout_s)
        return self._ends.pop(0)

    container_id = "c"


STOPPED = ContainerDetails("sha256:1", "@0", running=False, oom_killed=False, exit_code=137)
RUNNING = ContainerDetails("sha256:1", "@0", running=True, oom_killed=False, exit_code=0)
TASK = TaskInstance(instance_id="c__c-1", repo="c/c", sandbox=SandboxSpec(images=("i",), workdir="/testbed"))
BROKEN, LATE = _end(6, "fatal"), _end(None)


async def _files(engine: Engine, task: TaskInstance = TASK) -> tuple[bytes | None, str]:
    captures = Captures(cast(Runtime, engine), timeout_s=8, max_bytes=1 << 20, cpu_shares=256)
    try:
        return await captures.files("c", task)
    finally:
        await captures.close()
        assert engine.removed == engine.made, "a container of the capture is left"


async def test_a_tree_that_cannot_be_read_is_the_policys_if_the_images_can() -> None:
    """One reading that failed by accident is a 0.0; or the policy that broke its tree gets a mask."""
    assert await _files(Engine(BROKEN, _end())) == (DIFF, "")
    diff, cause = await _files(Engine(BROKEN, BROKEN, _end()))
    assert diff is None and "what the agent left" in cause
    with pytest.raises(InfrastructureError, match="nor could the unchanged tree"):
        await _files(Engine(BROKEN, BROKEN, BROKEN))


async def test_a_tree_that_takes_too_long_is_the_policys_if_the_images_takes_a_quarter() -> None:
    """On a host that is just too slow for its image, large trees would be a 0.0 each; a slower one is a loss."""
    engine = Engine(LATE, LATE, _end())
    assert (await _files(engine))[0] is None
    assert engine.bounds == [8, 8, 2]
    with pytest.raises(SandboxLost):
        await _files(Engine(LATE, LATE, LATE))


async def test_a_container_that_goes_while_it_is_read_gives_no_patch() -> None:
    """Its files vanish one by one: they would be deletions of the policy."""
    with pytest.raises(SandboxLost, match="removed"):
        await _files(Engine(_end(), seen=(STOPPED, SandboxLost("it was removed"))))


async def test_a_container_that_ends_while_it_is_read_is_read_again() -> None:
    """The mount shows the empty folder that its end left: all files would be deleted."""
    assert await _files(Engine(_end(), seen=(RUNNING,))) == (DIFF, "")
    ended = Engine(_end(), seen=(RUNNING,))
    await _files(ended)
    assert ended.made == 2, "one for each reading"


async def test_what_a_task_collects_has_the_captures_bound() -> None:
    """A task's own hour would hold up the end of its session."""
    grader = HarborGrader(tests="", carried=("/app",), collect=(Collect(command="true", timeout_s=3600),))
    engine = Engine(_end(), _end())
    await _files(engine, TASK.model_copy(update={"grader": grader}))
    assert engine.bounds == [8, 8]


class _Host:
    """An engine on which each reading of a tree runs into its bound, with this CPU time."""

    sees_files = True

    def __init__(self, cpu_s: float | None) -> None:
        self.cpu_s = cpu_s
        self.bounds: list[float] = []

    @property
    def inspector(self) -> "_Host":
        return self

    async def inspect(self, container_id: str) -> object:
        return SimpleNamespace(image="i", running=True, created_at="@0")

    freeze_or_kill = inspect

    async def create_reader(self, *_: object, **__: object) -> object:
        return SimpleNamespace(container_id="reader", exec=self._exec)

    async def create(self, *_: object, **__: object) -> object:
        return SimpleNamespace(container_id="control", exec=self._control)

    async def _exec(self, *_: object, timeout_s: float, **__: object) -> ExecResult:
        self.bounds.append(timeout_s)
        return _end(None)

    async def _control(self, *_: object, **__: object) -> ExecResult:
        return _end()

    async def cpu_times(self, ids: list[str]) -> dict[str, float]:
        return {} if self.cpu_s is None else dict.fromkeys(ids, self.cpu_s)

    async def remove(self, container_id: str) -> None:
        pass


@pytest.mark.parametrize(
    ("cpu_s", "lost", "bounds"), [(1.0, True, [7, 21]), (6.9, False, [7, 7]), (None, False, [7, 7])]
)
async def test_a_tree_is_not_blamed_for_a_host_without_cpu(
    cpu_s: float | None, lost: bool, bounds: list[float]
) -> None:
    """10,000 new files at load 100 were `empty_patch`, 0.0, unmasked; but a large tree must not be a mask at will."""
    host = _Host(cpu_s)
    captures = Captures(cast(Runtime, host), timeout_s=7, max_bytes=1 << 20, cpu_shares=256)
    taking = captures.files("c", TaskInstance(instance_id="a__b-1", repo="a/b", sandbox=SandboxSpec(images=("i",))))
    if lost:
        with pytest.raises(SandboxLost, match=r"too slow .* 1\.0 s of CPU"):
            await taking
    else:
        assert (await taking)[0] is None
    assert host.bounds == bounds
    await captures.close()
