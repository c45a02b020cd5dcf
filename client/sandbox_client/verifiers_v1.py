"""SWE tasks and code search for verifiers 0.4 (`verifiers.v1`), prime-rl, the Environments Hub; extra `verifiers-v1`.

A package on the hub exports these classes under its own name; examples/verifiers is one. For verifiers 0.2 to 0.3.1
use `sandbox_client.verifiers`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import verifiers.v1 as vf
from pydantic import Field, PrivateAttr

from sandbox_client import tools
from sandbox_client.errors import SettingsError
from sandbox_client.rollouts import Rollout, close_shared, service_url, shared_client

__all__ = [
    "SandboxEnv",
    "SandboxEnvConfig",
    "SandboxHarness",
    "SandboxHarnessConfig",
    "SandboxTask",
    "SandboxTaskConfig",
    "SandboxTaskset",
    "SandboxTasksetConfig",
]

_MODEL_LIMITS = httpx.Timeout(None, connect=30.0)  # a turn may take minutes; the agent's timeout bounds the rollout


class SandboxData(vf.TaskData):  # type: ignore[misc]  # verifiers is not installed where types are checked
    """A row: `id` is the instance's id, `prompt` the text for the policy."""


class SandboxState(vf.State):  # type: ignore[misc]
    """The rollout's session and, once it is graded, its reward."""

    sid: str = ""
    grade: dict[str, Any] | None = None
    """The service's answer to the reward request; None: not graded, or masked."""
    _rollout: Rollout | None = PrivateAttr(None)


class SandboxTaskConfig(vf.TaskConfig):  # type: ignore[misc]
    """How to reach the service. Traces contain these values: put an API key into SANDBOX_URL, not into `url`."""

    url: str | None = None
    """The service's base URL, or several, comma-separated; None: SANDBOX_URL."""
    run: str | None = None
    """The name of this training run at the service; None: SANDBOX_RUN."""


class SandboxTask(vf.Task[SandboxData, SandboxState, SandboxTaskConfig]):  # type: ignore[misc]
    """One instance in one session. A fault of the service or a masked reward is a TaskError: no reward is given."""

    @property
    def key(self) -> str:
        """The instance's id."""
        return str(self.data.id)

    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        """Start the session. Raises SandboxError, which verifiers records as the rollout's TaskError."""
        client = shared_client(service_url(self.config.url), run=self.config.run)
        rollout = await Rollout.start(client, self.key)
        trace.state.sid, trace.state._rollout = rollout.sid, rollout

    async def finalize(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        """End the session and fetch its reward. Raises RolloutMasked, SandboxError: the rollout gets no reward."""
        trace.state.grade = (await _rollout(trace).grade()).to_wire()

    @vf.reward  # type: ignore[untyped-decorator]
    async def reward(self, trace: vf.Trace) -> float:
        """The service's reward."""
        return float(trace.state.grade["reward"])

    @vf.metric  # type: ignore[untyped-decorator]
    async def graded(self, trace: vf.Trace) -> dict[str, float]:
        """Whether the task is resolved, the F2P and P2P tests that pass, and the items of a code-search reward."""
        grade: Mapping[str, Any] = trace.state.grade
        found = {f"item/{item['fn']}": float(item["value"]) for item in grade["items"]}
        return {name: float(grade[name]) for name in ("resolved", "f2p_count", "p2p_count")} | found


class SandboxTasksetConfig(vf.TasksetConfig):  # type: ignore[misc]
    """A file of rows; the service must have imported the same rows."""

    rows: Path = Path("rows.jsonl")
    """JSON lines with `instance_id`, and `prompt` or `problem_statement`."""
    task: SandboxTaskConfig = SandboxTaskConfig()


class SandboxTaskset(vf.Taskset[SandboxTask, SandboxTasksetConfig]):  # type: ignore[misc]
    """The instances of a file of rows."""

    def load(self) -> Iterator[SandboxTask]:
        """One task for each row. Raises SettingsError: a row has no instance_id, or no text for the policy."""
        with self.config.rows.open() as lines:
            for number, line in enumerate(lines, 1):
                row = json.loads(line)
                prompt = row.get("prompt") or row.get("problem_statement")
                if not row.get("instance_id") or not prompt:
                    raise SettingsError(
                        f"{self.config.rows}:{number} needs instance_id, and prompt or problem_statement"
                    )
                yield SandboxTask(SandboxData(id=row["instance_id"], prompt=prompt), self.config.task)


class SandboxHarnessConfig(vf.HarnessConfig):  # type: ignore[misc]
    """What the policy may do."""

    tools: list[str] = Field(default_factory=lambda: list(tools.FOR_PATCHES))
    """Tools of the policy, by their names in `sandbox_client.tools`; []: it writes calls as text, in the instance's
    dialect."""


class SandboxHarness(vf.Harness[SandboxHarnessConfig]):  # type: ignore[misc]
    """The loop between policy and service, in verifiers' own process; the agent's runtime runs nothing.

    All calls of a turn are sent in one request, so the service counts the same turns as the policy. The rollout ends
    when the service says so: after a recorded answer, after a finishing call, or because the session has ended.
    """

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """Run the rollout. Raises SandboxError, which verifiers records as a HarnessError."""
        system, prompt = self.resolve_prompt(data)
        asked = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [_wire(one) for one in prompt]
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        body = {"model": ctx.model, "messages": messages + asked}
        if self.config.tools:
            body["tools"] = tools.schemas(self.config.tools)
        async with httpx.AsyncClient(
            headers={"Authorization": f"Bearer {secret}"}, timeout=_MODEL_LIMITS, trust_env=False
        ) as model:
            while True:
                answer = await model.post(f"{endpoint}/chat/completions", json=body)
                if answer.is_error:  # verifiers itself records the reason: a limit, or an error of the model
                    return vf.ProgramResult(1, "", answer.text)
                said = answer.json()["choices"][0]["message"]
                body["messages"].append(said)
                if await self._played(_rollout(trace), said, body["messages"]):
                    return vf.ProgramResult(0, "", "")

    async def cleanup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        """End a session that was not graded."""
        if trace.state._rollout is not None:
            await trace.state._rollout.end()

    async def _played(self, rollout: Rollout, said: Mapping[str, Any], messages: list[dict[str, Any]]) -> bool:
        """Run a turn, append the service's answer, and return whether the rollout is over."""
        written = said.get("tool_calls") or []
        calls = [{"id": one["id"], **one["function"]} for one in written]
        reply = await rollout.turn(said.get("content") or "", calls)
        if calls:
            told = zip(calls, reply.texts, strict=True)
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": text} for call, text in told]
        else:
            messages.append({"role": "user", "content": reply.texts[0]})
        return reply.over


class SandboxEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    """One agent without a container: its commands run at the service."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class SandboxEnv(vf.Env[SandboxEnvConfig]):  # type: ignore[misc]
    """One agent on one task."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        """Run the agent on the task."""
        await agents.agent.run(task)

    async def stop(self) -> None:
        """Close the connections to the service."""
        await close_shared()


def _rollout(trace: vf.Trace) -> Rollout:
    """The rollout that `SandboxTask.setup` started. Raises SettingsError: the task is of another taskset."""
    rollout: Rollout | None = getattr(trace.state, "_rollout", None)
    if rollout is None:
        raise SettingsError("this harness and these rewards need a task of SandboxTaskset")
    return rollout


def _wire(message: Any) -> dict[str, Any]:
    wire: dict[str, Any] = message.model_dump(exclude_none=True)
    return wire
