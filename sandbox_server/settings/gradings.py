"""Patches and their gradings."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class GradingSettings(BaseModel):
    """Patches and their gradings."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    # Grading jobs
    grade_prefetch: Annotated[int, Field(ge=0)] = 4
    """Gradings that this node takes beyond SANDBOX_GRADE_CONCURRENCY to choose their order, while other nodes could
    take them; a single node takes all."""
    grade_recover_s: Annotated[float, Field(gt=0)] = 30.0
    """Interval between searches in SQL for patches that nobody is grading, for instance after a loss of Redis."""

    # Patches and grading
    end_grace_s: Annotated[float, Field(ge=0)] = 5.0
    """How long ending a session waits for its running action before the action and its commands are interrupted."""
    postprocess_timeout_s: float = 120.0
    """Limit on reading a session's tree for its patch. If the first read got less than half of it as CPU time, the host
    is busy: a second read may take three times as long. After two failed reads the image's own tree is read in the same
    way. If that works in time, the session is scored as without a patch; if not, or if the reads lacked CPU, the
    session is lost, and masked."""
    ending_max_s: Annotated[float, Field(gt=0)] = 900.0
    """Limit on ending a session, all attempts included; past it the session is lost and its container is removed."""
    max_patch_mb: float = 64.0
    """Largest patch that is kept."""
    grade_concurrency: int | None = Field(None, ge=1)
    """Concurrent gradings of this node; unset: three per four CPUs, at least 2."""
    grade_ahead: Annotated[int, Field(ge=0)] = 4
    """Grading containers created ahead, while their sessions end or others are graded; 0: none."""
    grade_cpu_shares: Annotated[int, Field(ge=2)] = 256
    """CPU weight of a container that grades or reads a patch; a session's is 1024."""
    grade_attempts: int = 3
    """Fresh containers tried before a grading ends as infra."""
    control_kept_s: Annotated[float, Field(ge=0)] = 300.0
    """How long a run of the unpatched tree or of gold is reused. A run with results (control) serves to blame patches
    for gradings that break off; a run without results, to mask patches that give no results either."""
    grade_timeout_s: float = 1800.0
    """Upper limit on any instance's tests."""
    judge_timeout_s: Annotated[float, Field(ge=1)] = 10.0
    """CPU seconds allowed for judging one log; in wall time it is four times as many. Past either, the log gives no
    results."""
    judge_memory_mb: Annotated[int, Field(ge=64)] = 512
    """Memory allowed for judging one log, beyond the library's own; past it the log gives no results."""
    drift_check_s: Annotated[float, Field(ge=0)] = 3600.0
    """About this often, an idle node grades gold of one sound instance again to detect one that now fails; 0: never."""
    grade_network: bool = False
    """Give grading containers a network."""
    runner_files: Literal["strip", "flag", "refuse"] = "strip"
    """What happens to changes in the test runner's own files that gold does not touch; they are always reported."""
    reward: str = "f2p_if_p2p_kept"
    """Reward function: f2p_if_p2p_kept, f2p_fraction (also rewards patches that break P2P tests), resolved."""
    confirm: Literal["resolved", "off"] | float = "resolved"
    """Which patches that earn a reward are run again with some tests made false (docs/grading.md). resolved: all;
    a number: that share; off: none."""
    confirm_runs: Annotated[int, Field(ge=2)] = 2
    """Minimum confirming runs of one patch. With 7, code that guesses at a single test of many also passes with a
    probability of at most 1 %."""
    confirm_times: Annotated[float, Field(ge=1)] = 10.0
    """In a confirming run the tests of a patch may take this many times the seconds of their first run, but at most
    twice their limit."""
    confirm_floor_s: Annotated[float, Field(ge=0)] = 60.0
    """Seconds that a confirming run may take even if the first run was quicker, because the host may be busier now."""
    unconfirmed: Literal["pay", "refuse"] = "pay"
    """Reward of a patch whose instance has no false tests (docs/grading.md). pay: the normal reward, though it may be a
    fake; refuse: 0.0, not masked, so that such instances teach nothing."""
    certify_concurrency: int | None = Field(None, ge=1)
    """Limit on task images that are sealed at a time, and on instances whose false tests are sought at a time. The
    gradings that need them hold no slot meanwhile. Unset: half of SANDBOX_GRADE_CONCURRENCY, at least 1."""
    certify_yield_s: Annotated[float, Field(ge=0)] = 60.0
    """For each instance, total time for which the runs that find its usable false tests give way to gradings that wait
    for a slot; 0: they do not give way."""
    certify_timeout_s: Annotated[float, Field(gt=0)] = 900.0
    """After this long, no further run starts to find usable false tests of an instance."""
    reward_wait_s: float = 280.0
    """Longest wait of /compute_reward for a grading under way; then the answer is `pending`. The client gives up at 300
    s."""
    localization_rewards: str = "multilevel"
    """How code search answers are scored if neither session nor instance says: a YAML file, or a composition from
    docs/rewards.md."""
    grade_batch: Annotated[int, Field(ge=1)] = 512
    """Limit on items of one POST /v1/grade."""
    allow_ungradable: bool = False
    """Allow starting instances that have no grader."""
    swebench4_dir: Path | None = None
    """Folder with swebench 4.1.0, for converting old rows; unset: share/swebench-4.1.0 of the environment."""
