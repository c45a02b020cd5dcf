"""Every setting of the server, read once from SANDBOX_* variables, else SANDBOX_ENV_FILE, else SANDBOX_SECRETS_DIR.

Only `app` and `cli` import this; all other packages get plain values.
"""

import os
import socket
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


class BoxSize(BaseModel):
    """Resources of a box size; null: the same as a session."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cpus: Annotated[float, Field(gt=0)] | None = None
    memory_mb: Annotated[int, Field(gt=0)] | None = None
    disk_mb: Annotated[int, Field(gt=0)] | None = None


class Settings(BaseSettings):
    """Each field is the variable SANDBOX_<NAME>; its docstring is its entry in docs/settings.md."""

    model_config = SettingsConfigDict(env_prefix="SANDBOX_", frozen=True, extra="ignore", use_attribute_docstrings=True)

    # Server
    host: str = "127.0.0.1"
    """Address to listen on. Anything but loopback needs SANDBOX_API_KEYS or SANDBOX_ALLOW_INSECURE=1."""
    port: Annotated[int, Field(ge=0, le=65535)] = 5000
    """Port to listen on."""
    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    """Comma-separated API keys. If any is set, every path except /healthz requires one, as Bearer token, X-API-Key or
    Basic password. Pages under /ui ask for it in a form; only that form and its style sheet are served without a key.

    `name=key` gives a key a name: its starts belong to the run of that name, and it can see and use only what was
    started with it. The whole entry is also accepted as a key, with the same rights, but names no run. A key without a
    name is an operator's key.
    """
    view_keys: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    """Comma-separated read-only keys: they see everything that operators see, including metrics. They take effect only
    together with SANDBOX_API_KEYS."""
    allow_insecure: bool = False
    """Allow a non-loopback address without API keys."""
    data_dir: Path = Path.home() / ".local" / "share" / "sandbox-server"
    """Folder for the files of the embedded Redis and SQLite."""
    data_min_free_mb: Annotated[float, Field(ge=0)] = 256.0
    """Minimum free space on the disk of SANDBOX_DATA_DIR. Below it no session, box or grading starts and no blob is
    accepted, so that running ones can store their journal and patches."""
    node_id: str = Field(default_factory=socket.gethostname)
    """Name of this sandbox host, and value of the label `sandbox.node` on its containers. Run one server per node."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum log level."""
    log_format: Literal["auto", "console", "json"] = "auto"
    """auto: console format on a terminal, else JSON lines."""
    max_body_mb: float = 32.0
    """Largest request body; a larger one gets 413. File uploads into boxes are streamed and limited only by their
    disk."""
    body_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """Time limit for receiving a request's body; then 408. Does not apply to file uploads into boxes and other
    streams."""
    keep_alive_s: Annotated[float, Field(gt=0)] = 620.0
    """Seconds that an idle connection stays open. E2B's clients may reuse one after up to 300 s."""
    stop_s: Annotated[float, Field(gt=0)] = 20.0
    """Seconds after SIGTERM by which the server has ended. Requests that are under way get half of them. What has not
    been put away by then is left to the next server."""
    e2b_prefix: Annotated[str, Field(pattern="^(/[A-Za-z0-9_.-]+)?$")] = "/e2b"
    """Every path is also served under this prefix, for clients whose URL must have one; empty: no prefix."""

    # State
    redis_url: str | None = None
    """Redis shared by the replicas; unset: a private Redis in SANDBOX_DATA_DIR."""
    redis_timeout_s: float = 5.0
    """Timeout of one exchange with Redis."""
    redis_outage_s: float = 20.0
    """How long requests wait for an unavailable Redis (restart, failover) before they fail."""
    database_url: str | None = None
    """SQLAlchemy URL (postgresql://..., sqlite:///...); unset: SQLite in SANDBOX_DATA_DIR."""
    database_password: SecretStr | None = None
    """Password for SANDBOX_DATABASE_URL, which then has a user but no password. Any characters are allowed."""
    result_ttl_s: float = 7 * 86400
    """How long Redis keeps an ended session and its verdict; SQL keeps them permanently."""
    lock_lease_s: float = 30.0
    """Lease of a session's lock. Its holder renews it, so the lock of a dead server is released after this time."""
    journal_flush_s: float = 0.5
    """Longest time from acknowledging an action until it is written to SQL."""
    action_search: bool = False
    """Index the words of actions in SQL, for `/ui/actions` and `/v1/actions/search`. Writing an action to SQL then
    takes four times the CPU (0.4 instead of 0.1 ms); the action does not wait for it."""

    # Fleet
    node_url: str | None = None
    """URL by which other nodes that share SANDBOX_REDIS_URL reach this server; unset: http://HOST:PORT of its listening
    address, with the host's name if it listens on all addresses."""
    node_beat_s: Annotated[float, Field(gt=0)] = 2.0
    """Interval between heartbeats of this node."""
    node_ttl_s: Annotated[float, Field(gt=0)] = 15.0
    """A node without a heartbeat for this long counts as dead, and its sessions move to other nodes."""
    forward_timeout_s: float = 420.0
    """Timeout of a request forwarded to another node; longer than any limit on answering."""
    restore: Literal["replay", "off"] = "replay"
    """What happens to a dead node's session when it is next used: replay runs its actions again in a fresh container;
    off gives it up (verdict infra, masked)."""
    restore_timeout_s: float = 600.0
    """Limit on replaying a session's actions; a session whose actions took longer than this is lost."""
    checkpoints_mb: Annotated[float, Field(gt=0)] = 4096.0
    """Limit on the checkpoints of sessions in SANDBOX_DATA_DIR, which their copies start from; the least recently used
    are removed first."""
    checkpoint_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """Limit on taking a session's checkpoint, and on giving its state to a container."""

    checkpoint_every: Annotated[int, Field(ge=0)] = 0
    """A session gets a checkpoint after each so many actions. Then few have to run again when its host has died, or for
    a copy from an earlier action. 0: none."""
    checkpoint_every_s: Annotated[float, Field(ge=0)] = 0.0
    """As SANDBOX_CHECKPOINT_EVERY, after so many seconds of actions. 0: none."""
    hibernate_s: Annotated[float, Field(ge=0)] = 0.0
    """A session without an action for this long sleeps: it has a checkpoint in place of a container, until its next
    action. Not if a program runs in it. SANDBOX_SESSION_IDLE_S still ends it. 0: never."""

    # Engine
    engine: Literal["docker", "podman"] = "docker"
    """Container engine. `podman`: the service at SANDBOX_DOCKER_URL (`podman system service`)."""
    docker_url: str | None = None
    """Socket of the engine; unset: DOCKER_HOST, else Docker's local socket."""
    docker_timeout_s: float = 60.0
    """Timeout of one call to the engine."""
    runtime: str | None = None
    """OCI runtime of the containers (runsc, kata); unset: the engine's default."""
    seccomp: str = "own"
    """System calls that containers may make. `own`: the server's profile, which allows fewer than Docker's newest
    default. `engine`: the engine's default. Else the path of a profile in Docker's format. gVisor and Kata ignore it.
    """
    fifo_dir: str = "auto"
    """Folder for the FIFOs through which the shells of a local engine's containers are reached. Engine and server must
    see it under the same path. `auto`: /run/sandbox-server for root, else `fifos` in SANDBOX_DATA_DIR. `off`: the
    engine carries the shells' bytes, which takes more CPU; where FIFOs do not work it does so by itself."""
    pull: Literal["missing", "never"] = "missing"
    """Whether missing task images are pulled."""
    pull_timeout_s: float = 540.0
    """Timeout of one image pull."""

    # Sandboxes
    memory_mb: int = 4096
    """Memory limit of a container; an instance may set its own."""
    cpus: float = 2.0
    """CPU limit of a container."""
    pids: int = 512
    """Limit on processes and threads of a container."""
    open_files: int = 4096
    """Limit on open files of a process; the Docker daemon's own hard limit also applies."""
    disk_mb: int = 10240
    """Size limit of one file, and of a container's writable layer; a grading that exceeds it is stopped."""
    disk_watch_s: float = 60.0
    """Interval between measurements of the writable layers; a session past SANDBOX_DISK_MB ends, and its patch is
    graded."""
    max_sessions: int = 512
    """Limit on live sessions of this node; further starts are queued, then refused with 503."""
    boot_concurrency: int | None = Field(None, ge=1)
    """Containers created or started at a time; unset: two per CPU, at least 4."""
    pool_size: Annotated[int, Field(ge=0)] = 16
    """Containers created ahead of expected starts (the pool); 0: no pool."""
    pool_idle_s: float = 600.0
    """Seconds until an unused container of the pool is removed."""
    pool_min_free_mb: int = 2048
    """If the host has less available memory than this, the pool is emptied and not filled."""
    pool_group: Annotated[int, Field(ge=1)] = 4
    """Expected number of consecutive starts of one instance, until the server has seen real groups."""
    pool_group_window_s: float = 30.0
    """After this pause, a start of the same instance begins a new group."""
    start_timeout_s: float = 300.0
    """Limit on /start_instance, queueing included; then 503 with a reason."""
    session_idle_s: float = 1800.0
    """A session without an action for this long ends; its patch is kept and graded."""
    session_max_s: float = 14400.0
    """A session older than this ends; its patch is kept and graded."""
    reaper_period_s: float = 5.0
    """Interval between passes of the reaper."""

    # Boxes
    box_image_keys: Annotated[tuple[str, ...], NoDecode] = ("image", "docker_image", "container_image")
    """Comma-separated metadata keys that name a box's image; the first one present in a request is used."""
    box_templates: dict[str, str] = {}
    """JSON object, template -> image, for requests whose metadata names no image: {"base": "python:3.12"}."""
    box_images: Annotated[tuple[str, ...], NoDecode] = ()
    """Comma-separated patterns (`*`, `?`) of images that boxes may run; missing ones are pulled. Unset: any image on
    the engine, and the images of the catalogue and of SANDBOX_BOX_TEMPLATES; only the latter two are pulled."""
    box_raw_images: Annotated[tuple[str, ...], NoDecode] = ()
    """Comma-separated patterns of task images that boxes get unmodified, including history after HEAD and hidden files;
    `*`: all. Unset: boxes see the same part of a task image as its sessions. See docs/boxes.md."""
    box_sizes: dict[str, BoxSize] = {
        "sm": BoxSize(cpus=1, memory_mb=2048),
        "md": BoxSize(cpus=2, memory_mb=4096),
        "lg": BoxSize(cpus=4, memory_mb=8192),
    }
    """JSON object: resources for each value of the metadata key `size`. A box without a size gets a session's
    resources; no box gets more CPUs than the engine has."""
    box_user: str = "root"
    """User of a box's commands and files if a request names none; E2B's own templates use `user`."""
    box_default_s: float = 300.0
    """Lifetime of a box if its request names none."""
    box_max_s: Annotated[float, Field(gt=0)] = 86400.0
    """Longest lifetime of a box, however often it is extended."""
    box_idle_s: Annotated[float, Field(ge=0)] = 0.0
    """A box that no request has used for this long is ended before its timeout, e.g. because its client has died. Open
    streams count as use, commands that nobody follows do not. 0: boxes never end by being idle, as at E2B."""
    box_paused_max_s: Annotated[float, Field(ge=0)] = 14400.0
    """Longest total time that a box may be paused; then it is removed. A paused box keeps its memory and its slot. 0:
    boxes cannot be paused."""
    template_builds: Annotated[int, Field(ge=0)] = 2
    """Templates that this node builds at a time for clients of E2B's protocol; 0: it builds none."""
    template_queue: Annotated[int, Field(ge=0)] = 50
    """Builds of templates that may wait; further ones are refused with 503."""
    template_build_s: Annotated[float, Field(gt=0)] = 1800.0
    """Limit on the steps of one build."""
    template_ready_s: Annotated[float, Field(gt=0)] = 40.0
    """Limit on a template's start command becoming ready, in each box's create and once in the build."""
    template_files_mb: Annotated[float, Field(gt=0)] = 64.0
    """Limit on one uploaded archive of files to copy, and on its contents. They are stored in SQL."""
    template_files_total_mb: Annotated[float, Field(gt=0)] = 2048.0
    """Limit on all archives of the templates of one API key."""
    box_network: Literal["bridge", "none"] = "bridge"
    """Network of boxes; a request may ask for less, never for more."""
    box_networks: dict[str, Literal["bridge", "none"]] = {}
    """JSON object, image pattern -> bridge or none; the first match overrides SANDBOX_BOX_NETWORK."""
    box_egress: Annotated[tuple[str, ...], NoDecode] | None = None
    """Comma-separated allow list for boxes, and for sessions whose instance has a network: `host:port`, `host`,
    `10.0.0.0/8`, `10.0.0.0/8:443`. Names are resolved when a container is created. A request may ask for less. Empty:
    nothing is reachable; unset: everything the network reaches."""
    egress_image: str = "sandbox-egress"
    """Image with nft, used to install these rules; `sandbox-server images build egress` builds it. docs/boxes.md."""
    box_create_wait_s: float = 50.0
    """Limit on creating a box, queueing and pulling included; E2B's clients give up at 60 s. A pull continues after
    it."""
    box_login_path: Literal["image", "profile"] = "image"
    """PATH of a login shell (`bash -l`), which E2B's clients always use: the image's own, or the one set by
    /etc/profile."""
    box_login_cache: bool = True
    """From its third identical start on, a login shell skips its profile if the profile only tests files and sets
    variables (docs/boxes.md). Off: the profile runs each time, which takes some 35 ms."""
    box_domain: Annotated[str, Field(pattern=r"^([A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*(:[0-9]+)?)?$")] = ""
    """Domain for box ports: requests to the host `<port>-<sandbox id>.` plus this domain go to that port of the box.
    E2B's clients are told the domain. Needs DNS and TLS in front (docs/boxes.md). Unset: no such names."""
    box_port_connections: Annotated[int, Field(gt=0)] = 64
    """Concurrent requests to ports of one box; more get 503. Each uses some processes of the box."""
    box_port_open_s: Annotated[float, Field(gt=0)] = 30.0
    """Timeout of connecting to a port of a box."""
    box_port_idle_s: Annotated[float, Field(gt=0)] = 300.0
    """A request to a port of a box is cut off after this long without traffic; 504 if it has no answer yet."""
    box_output_mb: Annotated[float, Field(gt=0)] = 16.0
    """Kept output of each stream of a /v1/boxes command: half from its head, half from its tail."""
    box_output_total_mb: Annotated[float, Field(gt=0)] = 256.0
    """Total kept output of such commands that have ended but were not read yet; the oldest is dropped first."""
    blobs_mb: Annotated[float, Field(gt=0)] = 4096.0
    """Limit on uploaded blobs in SANDBOX_DATA_DIR; the least recently used are removed first."""
    box_timeout_exit: bool = False
    """Report a command's timeout as exit code 124, as `timeout` does; off: as the protocol's error."""

    journal_file_mb: Annotated[float, Field(gt=0, le=64)] = 4.0
    """Largest file that /v1/boxes/{sid}/files writes into a session: its journal stores the bytes, to write them again
    if the session is restored. Copy larger files from /v1/blobs."""

    # Repositories
    search_image: str = "sandbox-search:latest"
    """Image for instances that name a repository but no image: bash, git and search tools.
    `sandbox-server images build search` builds it."""
    repositories_dir: Path | None = None
    """Folder of the repository mirrors, which several servers may share; unset: `repositories` in SANDBOX_DATA_DIR."""
    repositories_max_mb: Annotated[int, Field(ge=1)] = 51200
    """Limit on the total size of all mirrors; the least recently used are removed first."""
    repository_url: str = "https://github.com/{repo}.git"
    """URL or absolute path of a repository that a row names as owner/name."""
    repository_folders: Annotated[tuple[Path, ...], NoDecode] = ()
    """Comma-separated folders on this host that instances may take repositories from."""
    repository_protocols: Annotated[tuple[Literal["https", "http", "git"], ...], NoDecode] = ("https",)
    """Comma-separated protocols for fetching repositories. Credentials are never used."""
    repository_fetch_timeout_s: Annotated[float, Field(gt=0)] = 900.0
    """Timeout of one attempt to fetch from a repository."""
    repository_silence_s: Annotated[float, Field(gt=0)] = 60.0
    """A fetch without progress for this long is stopped."""
    repository_attempts: Annotated[int, Field(ge=1)] = 3
    """Attempts to fetch before an instance's image counts as unavailable; the next start tries again."""
    repository_pause_s: Annotated[float, Field(ge=0)] = 2.0
    """Pause before the second attempt; doubled before each further one."""
    repository_fetches: Annotated[int, Field(ge=1)] = 4
    """Repositories fetched at a time."""

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
    a minute; once it is used, requests get 429. 0: no limit."""
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
    """Disk usage in percent above which unused images are removed, least recently used first."""
    disk_low_pct: Annotated[float, Field(gt=0, le=100)] = 75.0
    """Disk usage below which no further image is removed."""
    disk_refuse_pct: Annotated[float, Field(gt=0, le=100)] = 95.0
    """Disk usage from which starts and gradings are refused and the pool is emptied."""
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
    exec_commands: Annotated[int, Field(ge=1)] = 64
    """Limit on commands in one batch; more get 422, or an error text if a policy's calls exceed it."""
    exec_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """Timeout of a command that names none; all commands of a batch end within SANDBOX_COMMAND_TIMEOUT_S."""
    exec_output_bytes: Annotated[int, Field(ge=200)] = 30_000
    """Bytes kept of a command's stdout, and of its stderr: half from the beginning, half from the end. A batch keeps at
    most 1 MiB."""

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
    """Limit on reading a session's tree for its patch. After two failed reads the image's own tree is read in the same
    way. If that works within the limit, the session is scored as without a patch; if not, it is lost, and masked."""
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
    """How long a successful run of the unpatched tree (control) is trusted, to blame patches for gradings that break
    off."""
    grade_timeout_s: float = 1800.0
    """Upper limit on any instance's tests."""
    judge_timeout_s: Annotated[float, Field(ge=1)] = 10.0
    """CPU seconds allowed for judging one log, and four times as many by the clock; past it the log gives no
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
    unconfirmed: Literal["pay", "refuse"] = "pay"
    """Reward of a patch whose instance has no false tests (docs/grading.md). pay: the normal reward, though it may be a
    fake; refuse: 0.0, not masked, so that such instances teach nothing."""
    certify_concurrency: int | None = Field(None, ge=1)
    """Task images sealed at a time, and instances whose false tests are tried at a time, for gradings that hold no slot
    meanwhile; unset: half of SANDBOX_GRADE_CONCURRENCY, at least 1."""
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

    @field_validator("confirm")
    @classmethod
    def _share(cls, value: float | str) -> float | str:
        if isinstance(value, float) and not 0 < value <= 1:
            raise ValueError("SANDBOX_CONFIRM is resolved, off or a number above 0, up to 1")
        return value

    @field_validator(
        "api_keys",
        "view_keys",
        "pinned_images",
        "box_image_keys",
        "box_images",
        "box_raw_images",
        "box_egress",
        "repository_folders",
        "repository_protocols",
        mode="before",
    )
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @model_validator(mode="after")
    def _marks_in_order(self) -> "Settings":
        if not self.disk_low_pct < self.disk_high_pct < self.disk_refuse_pct:
            raise ValueError("SANDBOX_DISK_LOW_PCT < SANDBOX_DISK_HIGH_PCT < SANDBOX_DISK_REFUSE_PCT does not hold")
        return self

    @property
    def own_url(self) -> str:
        """Effective SANDBOX_NODE_URL."""
        named = socket.gethostname() if self.host in ("0.0.0.0", "::", "") else self.host
        return (self.node_url or f"http://{named}:{self.port}").rstrip("/")

    @property
    def repositories(self) -> Path:
        """Effective SANDBOX_REPOSITORIES_DIR."""
        return self.repositories_dir or self.data_dir / "repositories"

    @property
    def boots(self) -> int:
        """Effective SANDBOX_BOOT_CONCURRENCY. On two CPUs, 16 starts took the same time with 3 or 8 at a time."""
        return self.boot_concurrency or max(4, 2 * (os.cpu_count() or 1))

    @property
    def gradings(self) -> int:
        """Effective SANDBOX_GRADE_CONCURRENCY. It leaves CPUs for live sessions. On two CPUs, 1 to 4 were as fast."""
        return self.grade_concurrency or max(2, (os.cpu_count() or 1) * 3 // 4)

    @property
    def certifications(self) -> int:
        """Effective SANDBOX_CERTIFY_CONCURRENCY."""
        return self.certify_concurrency or max(1, self.gradings // 2)

    @property
    def database(self) -> str:
        """Effective SQLAlchemy URL."""
        if self.database_url is None or self.database_password is None:
            return self.database_url or f"sqlite:///{self.data_dir / 'catalogue.sqlite3'}"
        parts = urlsplit(self.database_url)
        user, _, host = parts.netloc.rpartition("@")
        password = quote(self.database_password.get_secret_value(), safe="")
        return parts._replace(netloc=f"{user.partition(':')[0]}:{password}@{host}").geturl()


@lru_cache(maxsize=1)
def load() -> Settings:
    """The settings of this process."""
    return Settings(
        _env_file=os.environ.get("SANDBOX_ENV_FILE"), _secrets_dir=os.environ.get("SANDBOX_SECRETS_DIR") or None
    )
