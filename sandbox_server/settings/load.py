"""How much is done at a time, and how long an action may take."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import NoDecode


class LoadSettings(BaseModel):
    """How much is done at a time, and how long an action may take."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    # Load
    start_queue: Annotated[int, Field(ge=0)] = 1024
    """Starts that may wait for a slot of this node; past it 503 at once, first for the run with the most waiting
    starts."""
    run_sessions: Annotated[int, Field(ge=0)] = 0
    """Limit on sessions and boxes of one run on this node, including those starting; more get 429. All runs of a named
    key count as one. 0: only SANDBOX_MAX_SESSIONS limits."""
    run_starts_per_min: Annotated[int, Field(ge=0)] = 0
    """Limit on sessions and boxes that one run starts on this node per minute; more get 429. 0: no limit."""
    run_requests_per_min: Annotated[int, Field(ge=0)] = 0
    """Limit on requests of one named key to this node per minute, averaged over a minute; more get 429. 0: no limit."""
    run_sent_mb_per_min: Annotated[float, Field(ge=0)] = 0.0
    """Limit on what one named key sends to this node (files, blobs, all other bodies), in MiB per minute, averaged over
    a minute; past it, requests get 429. 0: no limit."""
    run_cpu_s: Annotated[float, Field(ge=0)] = 0.0
    """Limit on CPU seconds that the sessions and boxes of one run use on all nodes within SANDBOX_RUN_WINDOW_S; past
    it, new starts of the run get 429. All runs of a named key count as one. 0: no limit, nothing is measured."""
    run_grade_s: Annotated[float, Field(ge=0)] = 0.0
    """Limit on seconds for which gradings of one run hold a slot, on all nodes within SANDBOX_RUN_WINDOW_S; past it,
    new starts of the run and its patches for POST /v1/grade get 429. Sessions that have begun are still graded. 0: no
    limit."""
    run_window_s: Annotated[float, Field(ge=60, le=86_400)] = 3600.0
    """Window of SANDBOX_RUN_CPU_S and SANDBOX_RUN_GRADE_S; the same on all nodes."""
    run_cpu_period_s: Annotated[float, Field(gt=0)] = 5.0
    """Interval between readings of the CPU time of this node's sessions and boxes, if SANDBOX_RUN_CPU_S is set."""
    breaker_failures: Annotated[int, Field(ge=1)] = 5
    """Consecutive calls without an answer from the Docker daemon after which starts and gradings are refused at
    once."""
    breaker_probe_s: float = 2.0
    """Interval between checks whether an unresponsive daemon answers again."""
    disk_path: Path | None = None
    """A path on the engine's disk; unset: the engine's own folder if it is on this host, else SANDBOX_DATA_DIR."""
    disk_period_s: float = 5.0
    """Interval between measurements of the engine's disk."""
    disk_high_pct: Annotated[float, Field(gt=0, le=100)] = 85.0
    """Disk usage in percent from which unused images are removed, least recently used first."""
    disk_low_pct: Annotated[float, Field(gt=0, le=100)] = 75.0
    """Disk usage below which no further image is removed."""
    disk_refuse_pct: Annotated[float, Field(gt=0, le=100)] = 95.0
    """Disk usage from which starts are refused, gradings wait, and the pool is emptied."""
    pinned_images: Annotated[tuple[str, ...], NoDecode] = ()
    """Comma-separated patterns (`*`, `?`) of images that are never removed."""

    # Actions
    dialect: str = "openhands_xml"
    """Dialect of policies if the instance does not set it: openhands_xml, code, bash, tool_calls."""
    profile: str | None = None
    """Format of observations: openhands-0.17 or plain; unset: the dialect's own."""
    tool_calls: Literal["parallel", "in_order"] = "parallel"
    """Order of the calls of one turn (dialect tool_calls). parallel: `bash` calls run concurrently, each in a fresh
    shell; a turn that also has execute_bash or str_replace_editor runs in order. in_order: one after another, `bash`
    calls in the persistent shell."""
    command_timeout_s: float = 100.0
    """Limit on one action, including the wait for the session's lock; the earliest client gives up at 120 s."""
    soft_timeout_s: float | None = None
    """If set, a command that runs longer is left running (exit code -1) instead of being killed at the hard timeout."""
    action_wait_s: float = 10.0
    """Added to SANDBOX_COMMAND_TIMEOUT_S for killing and waiting; after both, the answer is `session_busy`."""

    # Batches of commands
    exec_parallel: Annotated[int, Field(ge=1)] = 8
    """Concurrent commands of one session: calls of one turn (dialect tool_calls), or commands of one POST to exec."""
    exec_node_parallel: int | None = Field(None, ge=1)
    """Concurrent commands of this node; unset: 16 per CPU, at least 64."""
    exec_commands: Annotated[int, Field(ge=1, le=1024)] = 64
    """Limit on commands in one batch, at most 1024; more get 422, or an error text if a policy's calls exceed it."""
    exec_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """Timeout of a command that names none; all commands of a batch end within SANDBOX_COMMAND_TIMEOUT_S."""
    exec_output_bytes: Annotated[int, Field(ge=200)] = 30_000
    """Bytes kept of a command's stdout, and of its stderr: half from the beginning, half from the end. A batch keeps at
    most 1 MiB."""
