"""Logs (structlog) and metrics (Prometheus): set up once, used everywhere by name."""

import logging
import sys
from collections.abc import Mapping
from typing import cast

import structlog
from prometheus_client import Counter, Gauge, Histogram

_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 100)
_SLOW = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)

SESSIONS_LIVE = Gauge("sandbox_sessions_live", "Live sessions of this node")
STARTS = Counter("sandbox_starts_total", "Session starts by result", ["result"])
START_SECONDS = Histogram(
    "sandbox_start_seconds",
    "Stages of a start: queue, prepare, container, record; create and shell of each container made, ahead or not",
    ["stage"],
    buckets=_FAST,
)
STARTS_WAITING = Gauge("sandbox_starts_waiting", "Starts under way by what they wait for", ["reason"])
STARTS_REFUSED = Counter("sandbox_starts_refused_total", "Starts refused with 503 by what they lacked", ["reason"])
RUNS = Gauge(
    "sandbox_run_starts",
    "Slots held and starts waiting for one, by run; the runs after the 20 largest are summed as (other)",
    ["run", "state"],
)
NODE_FAULT = Gauge("sandbox_node_fault", "1 while this fault stops new work: daemon, disk, data", ["reason"])
DISK_USED = Gauge("sandbox_engine_disk_used_ratio", "Used share of the engine's disk, 0 to 1")
IMAGES_REMOVED = Counter("sandbox_images_removed_total", "Images removed to make room on the engine's disk")
SHELLS = Counter("sandbox_shells_total", "Shells that started, by what carries their bytes: fifos, engine", ["way"])
POOL_PARKED = Gauge("sandbox_pool_parked", "Containers parked for future starts")
POOL_TAKES = Counter("sandbox_pool_takes_total", "Containers taken by starts: warm, joined, cold, dead", ["how"])
ACTIONS = Counter("sandbox_actions_total", "Actions by tool and outcome", ["tool", "outcome"])
ACTION_SECONDS = Histogram(
    "sandbox_action_seconds",
    "Stages of an action: wait, parse, run, journal; patch at the end",
    ["stage"],
    buckets=_FAST,
)
COMMAND_SECONDS = Histogram(
    "sandbox_command_seconds", "Stages of a batch's command: queued, run", ["stage"], buckets=_FAST
)
CONFIRMATIONS = Counter(
    "sandbox_confirmations_total", "Confirming runs: confirmed, tampered, none, off, skipped", ["state"]
)
VERDICTS = Counter("sandbox_verdicts_total", "Verdicts given", ["verdict", "masked"])
DRIFTED = Gauge("sandbox_drifted_instances", "Instances whose gold resolved them once and did not at the last check")
TRIPWIRES = Counter("sandbox_tripwires_total", "Graded sessions with a sign of tampering, by sign", ["sign"])
ROLLOUT = Histogram(
    "sandbox_rollout",
    "Numbers of graded rollouts by name: turns, tool calls, seconds, tokens, reward and its items",
    ["metric"],
    buckets=(-10, -5, -1, 0, 0.1, 0.25, 0.5, 0.75, 1, 2, 3, 5, 10, 20, 50, 100, 300, 1_000, 10_000, 100_000),
)
GRADE_SECONDS = Histogram("sandbox_grade_seconds", "Stages of a grading", ["stage"], buckets=_SLOW)
GRADINGS_WAITING = Gauge("sandbox_gradings_waiting", "Gradings that wait for a slot")
GRADINGS_RUNNING = Gauge("sandbox_gradings_running", "Gradings in a slot")
FORWARDED = Counter("sandbox_forwarded_total", "Requests sent to another node: answered, given_up", ["how"])
RESTORES = Counter(
    "sandbox_restores_total",
    "Restores of sessions of dead nodes: same, different (an action ended differently), failed",
    ["result"],
)
RESTORE_SECONDS = Histogram(
    "sandbox_restore_seconds", "Seconds of a restore, from its start to the restored sandbox", buckets=_SLOW
)
FORKS = Counter("sandbox_forks_total", "Copies of sessions: ok, or the code of the error", ["result"])
CHECKPOINT_SECONDS = Histogram(
    "sandbox_checkpoint_seconds",
    "Checkpoints of a session's files and shell, or of a box's files: take, restore (in another container)",
    ["stage"],
    buckets=_SLOW,
)
CHECKPOINT_COPIES = Counter(
    "sandbox_checkpoint_copies_total",
    "Checkpoints copied to the object store (out), or looked up there and copied here (in), by result",
    ["way", "result"],
)
SNAPSHOTS = Counter("sandbox_snapshots_total", "Snapshots of boxes: ok, or the code of the error", ["result"])
BOX_FORKS = Counter("sandbox_box_forks_total", "Copies of boxes: ok, or the code of the error", ["result"])
SLEEPS = Counter(
    "sandbox_sleeps_total",
    "Attempts to let an idle session or box sleep: asleep, awake (not possible), or the code of the error",
    ["result"],
)
WAKE_SECONDS = Histogram("sandbox_wake_seconds", "Seconds to restore a sleeping session or box", buckets=_SLOW)
REAPED = Counter("sandbox_reaped_total", "Containers and sessions ended by the reaper", ["why"])
LOOP_STALL_SECONDS = Histogram(
    "sandbox_loop_stall_seconds",
    "Delays of the event loop's own timer: busy (in its thread), blocked; without the time spent waiting for a CPU",
    ["cause"],
    buckets=_FAST,
)
LOOP_FAILURES = Counter("sandbox_loop_failures_total", "Rounds of background loops that failed", ["loop"])
LOOP_FAILING = Gauge("sandbox_loop_failing", "Rounds in a row that failed, of each background loop", ["loop"])
KEYS_REFUSED = Counter("sandbox_keys_refused_total", "Wrong keys, in requests or at the login of the pages", ["where"])
INFRA_ERRORS = Counter("sandbox_infrastructure_errors_total", "Faults of the service, by error code", ["code"])


_RUNS = 20  # limit on series per state: clients choose the labels, and a scraper keeps each


def show_runs(held: Mapping[str, int], waiting: Mapping[str, int]) -> None:
    """Set `sandbox_run_starts`; runs that hold and wait for nothing are removed."""
    runs = sorted(held.keys() | waiting.keys(), key=lambda run: (-held.get(run, 0) - waiting.get(run, 0), run))
    RUNS.clear()
    for number, run in enumerate(runs):
        shown = run if number < _RUNS else "(other)"
        RUNS.labels(shown, "held").inc(held.get(run, 0))
        RUNS.labels(shown, "waiting").inc(waiting.get(run, 0))


def count_from(histogram: Histogram, bound: float) -> int:
    """How many values above `bound`, one of its buckets, were observed with any labels."""
    samples = [sample for family in histogram.collect() for sample in family.samples]
    below = sum(s.value for s in samples if s.name.endswith("_bucket") and float(s.labels["le"]) == bound)
    return round(sum(s.value for s in samples if s.name.endswith("_count")) - below)


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """A structured logger. Bind sid and instance_id; do not put them into the message."""
    return cast(structlog.stdlib.BoundLogger, structlog.get_logger(name))


def configure_logging(level: str, style: str) -> None:
    """Log to stderr at `level`; `style` is auto, console or json."""
    console = style == "console" or (style == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
