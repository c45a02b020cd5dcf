"""The budgets that the figures are compared with, as data. Two cores, everything on one machine."""

from dataclasses import dataclass
from typing import Literal

from bench.results import Run


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on our value of a figure, or on ours / peer."""

    what: str
    figure: str
    limit: float
    of: Literal["ours", "ratio"] = "ours"
    at_least: bool = False
    why: str = ""
    """What keeps the figure above the limit, where that is known."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A budget and the measured value."""

    budget: Budget
    value: float | None
    """None: not measured."""

    @property
    def met(self) -> bool | None:
        """None: not measured."""
        if self.value is None:
            return None
        limit = self.budget.limit
        return self.value >= limit if self.budget.at_least else self.value <= limit


BUDGETS = (
    Budget(
        "`true` in one session, p50",
        "action_true_ms",
        1.3,
        why="it is CPU time of client, server, Redis and shell, one after the other",
    ),
    Budget("`true` in one session, p99", "action_true_p99_ms", 5),
    Budget("`true`, ours / SWE-ReX run_in_session", "action_true_ms", 1 / 40, "ratio"),
    Budget("`true`, ours / docker exec", "action_true_exec_ms", 1 / 30, "ratio"),
    Budget("CPU of an action, all processes but the client's", "action_cpu_ms", 1.4),
    Budget(
        "10 MB of output in one action, ours / docker exec",
        "output_10mb_s",
        1 / 3,
        "ratio",
        why="an action has a terminal; see the figures beside `docker exec -t` and of a command without one",
    ),
    Budget("64 sessions, one action a second each, p99", "action_paced64_p99_ms", 8),
    Budget("64 sessions, one action a second each, errors", "action_paced64_errors", 0),
    Budget("actions per second, closed loop, 16 sessions", "actions_per_s", 1100, at_least=True),
    Budget("start, warm container, p50", "start_warm_ms", 10),
    Budget("start, cold, ours / (docker run -d + docker exec)", "start_cold_ms", 0.5, "ratio"),
    Budget("preparing an image with a history like sympy's", "prepare_history_s", 2.5),
    Budget("16 starts at once, ours / 16 docker run -d at the best concurrency", "start_group16_s", 0.8, "ratio"),
    Budget("16 starts at once that failed", "start_group16_failed", 0),
    Budget("200 live sessions that answer", "sessions_answering_at_200", 200, at_least=True),
    Budget("200 live sessions, server memory (150 MB + 0.2 MB a session)", "rss_mb_at_200", 150 + 0.2 * 200),
    Budget("200 idle sessions, server and Redis, of one core", "idle_cpu_pct_at_200", 1.5),
    Budget("grading beyond the tests' own time", "grade_overhead_s", 0.7),
    Budget("grading with its confirming runs, beyond 2.2 times its tests", "grade_confirmed_over_s", 1.0),
    Budget("whole grading, ours / the benchmark harness's run", "grade_total_s", 0.6, "ratio"),
    Budget("judge of an innocent log beside 8 that never end, p99, ours / alone", "judge_p99_ms", 1.5, "ratio"),
    Budget("8 honest sessions beside 8 hostile ones, p99, ours / alone", "neighbours_p99_ms", 2, "ratio"),
    Budget("8 honest sessions beside 8 hostile ones, errors", "neighbours_errors", 0),
    Budget("16 sessions beside five viewers of the pages, p99, ours / alone", "ui_action_p99_ms", 1.1, "ratio"),
    Budget("stalls of the event loop while pages are viewed", "ui_loop_stalls", 0),
    Budget("overview of 100,000 sessions in SQLite, p50", "ui_overview_ms", 300),
    Budget("page of a session, p50", "ui_session_ms", 100),
    Budget("list of sessions, runs, groups or instances, p50", "ui_list_ms", 200),
    Budget("reward of a graded session", "reward_cached_ms", 6),
    Budget("reward of a patch that was graded for another session", "reward_identical_ms", 6),
    Budget(
        '`commands.run("true")` by the E2B SDK, beyond its own cost',
        "e2b_true_ms",
        2.2,
        why="half of it is the start and end of the command's own bash",
    ),
    Budget(
        "64 boxes polled every 5 s, of one core",
        "e2b_polled64_pct",
        7,
        why="a poll is such a command, and no cache holds anything of the box after 5 s",
    ),
    Budget("checkpoint of 20 changed files, 1 MB", "fork_checkpoint_ms", 15),
    Budget("wake of a sleeping session into a parked container, beyond its action", "wake_ms", 40),
    Budget(
        "16 copies into parked containers, until all have answered an action",
        "fork16_parked_ms",
        60,
        why="the CPU time of 16 restores and 16 actions; the kernel's search for inodes is half of a restore's files",
    ),
    Budget("16 copies into new containers, ours / 16 starts", "fork16_cold_ms", 1.15, "ratio"),
    Budget("checkpoint of 200 MB of changed files", "fork_checkpoint_200mb_s", 1.5),
    Budget("copy of 200 MB of changed files", "fork_200mb_s", 1.5),
    Budget("`import sandbox_server.app`", "import_s", 1.0),
    Budget("`import sandbox_server.app`, heavy benchmark dependencies loaded", "import_heavy", 0),
)


def kept(run: Run) -> list[Kept]:
    """Every budget with the run's figure for it."""

    def value(budget: Budget) -> float | None:
        figure = run.figure(budget.figure)
        if figure is None:
            return None
        if budget.of == "ratio":
            return figure.ratio
        return None if figure.ours is None else figure.ours.value

    return [Kept(budget, value(budget)) for budget in BUDGETS]
