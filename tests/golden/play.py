"""Plays the recorded scripts (see README.md beside this) against any Sandbox; tests give it a fake or a real one."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from sandbox_server.actions import registry
from sandbox_server.actions.base import Call, EditorHistory, ToolContext
from sandbox_server.actions.batch import BatchBounds, Batches
from sandbox_server.actions.profiles import OPENHANDS
from sandbox_server.catalogue.instance import SandboxSpec, TaskInstance
from sandbox_server.sandbox.base import Sandbox

HERE = Path(__file__).parent
EDITOR_HEAD = "EXECUTION RESULT of [str_replace_editor]:\n"
SECONDS = 6.0


class MemoryHistory:
    """Undo stacks in a dict."""

    def __init__(self) -> None:
        self.stacks: dict[str, list[str]] = {}

    async def push(self, path: str, text: str) -> None:
        self.stacks.setdefault(path, []).append(text)

    async def pop(self, path: str) -> str | None:
        stack = self.stacks.get(path)
        return stack.pop() if stack else None


def context(
    sandbox: Sandbox,
    *,
    history: EditorHistory | None = None,
    instance: TaskInstance | None = None,
    profile: str = OPENHANDS,
    command_timeout_s: float = SECONDS,
    soft_timeout_s: float | None = None,
    bounds: BatchBounds | None = None,
) -> ToolContext:
    """A tool's context around `sandbox`."""
    return ToolContext(
        sandbox=sandbox,
        instance=instance or TaskInstance(instance_id="i", repo="a/b", sandbox=SandboxSpec(images=("image",))),
        history=history or MemoryHistory(),
        profile=profile,
        command_timeout_s=command_timeout_s,
        soft_timeout_s=soft_timeout_s,
        batches=Batches(bounds or BatchBounds()),
    )


def script(name: str) -> list[dict]:
    """The calls of golden/<name>.json, in order."""
    return json.loads((HERE / f"{name}.json").read_text())


async def play_editor(sandbox: Sandbox) -> Iterator[tuple[dict, str, str]]:
    """(call, text seen, text recorded) of each step; `sandbox` has /workspace/ed with the folders pkg and .git."""
    await sandbox.write_file("/workspace/ed/bin", b"\xff\xfe\x00")
    tool, around = registry.tools()["str_replace_editor"], context(sandbox)
    steps = script("editor")
    seen = []
    for number, step in enumerate(steps):
        if step["input"] == {"command": "view", "path": "/workspace/ed"}:
            # The recording was made before the file `bin` was.
            recorded = step["observation"].replace("/workspace/ed/pkg\n", "/workspace/ed/pkg\n/workspace/ed/bin\n")
            text = (await tool.run(Call(tool.name, step["input"]), around)).text.removeprefix(EDITOR_HEAD)
            seen.append((step["input"], _sorted_lines(text), _sorted_lines(recorded)))
            continue
        observation = await tool.run(Call(tool.name, step["input"]), around)
        assert observation.text.startswith(EDITOR_HEAD), (number, observation.text)
        seen.append((step["input"], observation.text.removeprefix(EDITOR_HEAD), step["observation"]))
    return iter(seen)


def _sorted_lines(text: str) -> str:
    """A `find` listing as a set: its head stays on top."""
    head, *paths = text.split("\n")
    return "\n".join([head, *sorted(paths)])


def normal(text: str) -> str:
    """A shell observation without what differs from run to run (and blank lines before a note: the pty's)."""
    text = re.sub(r"\[1\] \d+", "[1] PID", text)
    text = re.sub(r"\[Python Interpreter: [^\]]*\]", "[Python Interpreter: PYTHON]", text)
    text = re.sub(r"after [\d.]+ seconds", "after N seconds", text)
    text = re.sub(r"(\r\n)*\[1\]\+  Done +sleep 20\r\n", "", text)  # comes when job control notices, not by the script
    return re.sub(r"(\^C)?(\r\n)+(?=\[(Command timed out|SIGINT))", "\r\n", text)


async def play_shell(sandbox: Sandbox) -> list[tuple[str, str, str]]:
    """(command, text seen, text recorded), both `normal`, in a shell that stands in the empty /workspace/repo.

    The last step (`if true; then`) is left out: here bash's syntax error is the answer, there it was a timeout.
    """
    tool, around = registry.tools()["execute_bash"], context(sandbox)
    seen = []
    for step in script("bash")[:-1]:
        observation = await tool.run(Call(tool.name, {"command": step["input"]}), around)
        seen.append((step["input"], normal(observation.text), normal(step["observation"])))
    return seen
