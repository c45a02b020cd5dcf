"""A sandbox whose files lie in memory and whose shell answers from a script. The real one is tested in conformance."""

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field

from sandbox_server.sandbox.base import ExecResult, Output, ShellOutcome, ShellResult


def result(
    output: str = "",
    exit_code: int = 0,
    outcome: ShellOutcome = ShellOutcome.FINISHED,
    *,
    cwd: str = "/tmp",
    user: str = "root",
    python: str = "/usr/bin/python",
    shell_replaced: bool = False,
    restarted: bool = False,
    oom_killed: bool = False,
) -> ShellResult:
    return ShellResult(
        Output(output.encode("utf-8", "surrogatepass")),
        outcome,
        exit_code,
        cwd,
        user,
        python,
        0.0,
        shell_replaced,
        restarted,
        oom_killed,
    )


@dataclass
class FakeShell:
    """Gives its `script`'s results in order and remembers what it was asked."""

    script: list[ShellResult] = field(default_factory=list)
    running: bool = False
    asked: list[tuple] = field(default_factory=list)

    def _next(self) -> ShellResult:
        answer = self.script.pop(0)
        self.running = answer.outcome is ShellOutcome.RUNNING
        return answer

    async def run(
        self, command: str, *, timeout_s: float, soft_timeout_s: float | None = None, since_mark: bool = True
    ) -> ShellResult:
        assert "\0" not in command
        self.asked.append(("run", command, timeout_s, soft_timeout_s, since_mark))
        return self._next()

    async def poll(self, *, wait_s: float) -> ShellResult:
        self.asked.append(("poll", wait_s))
        return self._next()

    async def send(self, text: str, *, wait_s: float) -> ShellResult:
        self.asked.append(("send", text, wait_s))
        return self._next()

    async def interrupt(self, *, wait_s: float) -> ShellResult:
        self.asked.append(("interrupt", wait_s))
        return self._next()


@dataclass
class FakeSandbox:
    """Files in a dict, folders in a set; `exec` gives `exec_result` and remembers, but answers `find` itself."""

    files: dict[str, bytes] = field(default_factory=dict)
    folders: set[str] = field(default_factory=lambda: {"/"})
    shell: FakeShell = field(default_factory=FakeShell)
    exec_result: ExecResult | None = None
    executed: list[tuple[list[str], dict]] = field(default_factory=list)
    errors: dict[tuple[str, str], Exception] = field(default_factory=dict)
    """(read or write, path) -> what that raises."""
    container_id: str = "fake"

    def mkdir(self, path: str) -> None:
        while path not in self.folders:
            self.folders.add(path)
            path = posixpath.dirname(path)

    async def exec(self, argv: Sequence[str], **kwargs) -> ExecResult:
        self.executed.append((list(argv), kwargs))
        if self.exec_result is not None:
            return self.exec_result
        assert argv[:2] == ["find", "-H"] and list(argv[3:]) == ["-maxdepth", "2", "-not", "-path", r"*/\.*"]
        root = argv[2]
        inside = [p for p in [*self.folders, *self.files] if p.startswith(root + "/") and "/." not in p]
        lines = [root, *(p for p in inside if p[len(root) + 1 :].count("/") < 2)]
        return ExecResult(0, Output("".join(f"{line}\n" for line in lines).encode()), Output(b""), False, 0.0)

    async def read_file(self, path: str, *, max_bytes: int, user: str = "") -> bytes:
        if error := self.errors.get(("read", path)):
            raise error
        if path in self.folders:
            raise IsADirectoryError(path)
        if posixpath.dirname(path) in self.files:
            raise NotADirectoryError(path)
        if path not in self.files:
            raise FileNotFoundError(path)
        if len(self.files[path]) > max_bytes:
            raise OverflowError(path)
        return self.files[path]

    async def write_file(self, path: str, data: bytes, *, mode: int | None = None, user: str = "") -> None:
        if error := self.errors.get(("write", path)):
            raise error
        self.mkdir(posixpath.dirname(path))
        self.files[path] = data
