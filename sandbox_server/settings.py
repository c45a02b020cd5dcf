"""Every setting of the server, read once: SANDBOX_* variables, else SANDBOX_ENV_FILE, else SANDBOX_SECRETS_DIR.

Only `app` and `cli` import this; every other room gets plain values.
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
    """What a size of boxes allows; null: as any session."""

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
    """Comma-separated keys. With any set, every path but /healthz asks for one: Bearer, X-API-Key or Basic password.
    Pages under /ui ask for one in a form; that form and its style sheet alone are shown without.

    `name=key` gives a key a name: its starts belong to that run, and it sees and touches only what was begun with it.
    A whole entry is always a key too, with the same rights, that names no run. A key without a name is an operator's.
    """
    view_keys: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    """Comma-separated keys that see what operators see, metrics too, and may do nothing. They count only beside
    SANDBOX_API_KEYS."""
    allow_insecure: bool = False
    """Allow an address other than loopback without API keys."""
    data_dir: Path = Path.home() / ".local" / "share" / "sandbox-server"
    """Where the embedded Redis and SQLite keep their files."""
    data_min_free_mb: Annotated[float, Field(ge=0)] = 256.0
    """Least room on the disk of SANDBOX_DATA_DIR: below it nothing new begins and no blob is taken, so that what is
    under way keeps its journal and patches."""
    node_id: str = Field(default_factory=socket.gethostname)
    """Name of this sandbox host; label `sandbox.node` on every container. One server per node."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is logged."""
    log_format: Literal["auto", "console", "json"] = "auto"
    """auto: console on a terminal, else JSON lines."""
    max_body_mb: float = 32.0
    """Largest request body; past it 413. Uploads of files into boxes are streams and have no bound but their disk."""
    body_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """For a request's body to come whole; past it 408. Uploads of files into boxes, and other streams: no bound."""
    keep_alive_s: Annotated[float, Field(gt=0)] = 620.0
    """How long an idle connection stays open; E2B's clients write into one after up to 300 s."""
    e2b_prefix: Annotated[str, Field(pattern="^(/[A-Za-z0-9_.-]+)?$")] = "/e2b"
    """Every path is served under this one too, for clients whose URL has to have one; empty: none."""

    # State
    redis_url: str | None = None
    """Redis to share between replicas; unset: a private one in SANDBOX_DATA_DIR."""
    redis_timeout_s: float = 5.0
    """Bound on one exchange with Redis."""
    redis_outage_s: float = 20.0
    """How long requests wait for a Redis that is away (a restart, a failover) before they fail."""
    database_url: str | None = None
    """SQLAlchemy URL (postgresql://..., sqlite:///...); unset: SQLite in SANDBOX_DATA_DIR."""
    database_password: SecretStr | None = None
    """Password for SANDBOX_DATABASE_URL, which then names a user without one: kept as a secret, in any characters."""
    result_ttl_s: float = 7 * 86400
    """How long Redis keeps an ended session and its verdict; SQL keeps them for good."""
    lock_lease_s: float = 30.0
    """Lease of a session's lock; renewed while its holder lives, so a dead server frees it this soon."""
    journal_flush_s: float = 0.5
    """Longest time from an acknowledged action to its row in SQL."""

    # Fleet
    node_url: str | None = None
    """Where the other nodes that share SANDBOX_REDIS_URL reach this server; unset: http://HOST:PORT that it
    listens on, with the host's name where that is every address."""
    node_beat_s: Annotated[float, Field(gt=0)] = 2.0
    """Pause between two heartbeats of this node."""
    node_ttl_s: Annotated[float, Field(gt=0)] = 15.0
    """A node without a heartbeat for this long is dead: its sessions go on elsewhere."""
    forward_timeout_s: float = 420.0
    """Bound on a request that another node answers; longer than any bound on answering."""
    restore: Literal["replay", "off"] = "replay"
    """What becomes of a dead node's session when it is asked for: its actions are run again in a fresh container, or it
    is lost (verdict infra, masked)."""
    restore_timeout_s: float = 600.0
    """Bound on running a session's actions again; one whose actions took longer than this is lost."""

    # Engine
    engine: Literal["docker", "podman"] = "docker"
    """What runs the containers. `podman`: its service (`podman system service`), at SANDBOX_DOCKER_URL."""
    docker_url: str | None = None
    """Socket of the engine; unset: DOCKER_HOST, else Docker's local socket."""
    docker_timeout_s: float = 60.0
    """Bound on one call to the engine."""
    runtime: str | None = None
    """OCI runtime of the containers (runsc, kata); unset: the engine's default."""
    pull: Literal["missing", "never"] = "missing"
    """Whether absent task images are pulled."""
    pull_timeout_s: float = 540.0
    """Bound on one image pull."""

    # Sandboxes
    memory_mb: int = 4096
    """Memory of one container; an instance may name its own."""
    cpus: float = 2.0
    """CPUs of one container."""
    pids: int = 512
    """Processes and threads of one container."""
    open_files: int = 4096
    """Open files of one process; the Docker daemon's own hard limit is the most it can be."""
    disk_mb: int = 10240
    """Largest file, and largest writable layer, of one container; a grading that is past it is stopped."""
    disk_watch_s: float = 60.0
    """Pause between two looks at the writable layers; a session past SANDBOX_DISK_MB ends, its patch is graded."""
    max_sessions: int = 512
    """Live sessions of this node; past it starts queue, then 503."""
    boot_concurrency: int | None = Field(None, ge=1)
    """Containers being created or started at a time; unset: two for each CPU, at least 4."""
    pool_size: Annotated[int, Field(ge=0)] = 16
    """Containers parked ahead of the starts that are expected; 0 turns it off."""
    pool_idle_s: float = 600.0
    """A parked container that no start took goes after this long."""
    pool_min_free_mb: int = 2048
    """Available memory of the host below which nothing is parked and what is parked goes."""
    pool_group: Annotated[int, Field(ge=1)] = 4
    """Starts of one instance in a row that are expected until the server has seen how many there are."""
    pool_group_window_s: float = 30.0
    """Pause after which a start of the same instance begins a new group."""
    start_timeout_s: float = 300.0
    """Bound on /start_instance, queueing included; past it 503 with a reason."""
    session_idle_s: float = 1800.0
    """A session without an action for this long ends; its patch is kept and graded."""
    session_max_s: float = 14400.0
    """A session older than this ends likewise."""
    reaper_period_s: float = 5.0
    """Pause between two passes of the reaper."""

    # Boxes
    box_image_keys: Annotated[tuple[str, ...], NoDecode] = ("image", "docker_image", "container_image")
    """Comma-separated metadata keys that name a box's image; the first that a request has counts."""
    box_templates: dict[str, str] = {}
    """JSON object, template to image, for requests whose metadata name none: {"base": "python:3.12"}."""
    box_images: Annotated[tuple[str, ...], NoDecode] = ()
    """Comma-separated patterns (`*`, `?`) of the images that boxes may run; they are pulled when absent. Unset: any
    image that is on the engine, and those of the catalogue and of SANDBOX_BOX_TEMPLATES, which alone are pulled."""
    box_raw_images: Annotated[tuple[str, ...], NoDecode] = ()
    """Comma-separated patterns of the task images that boxes get as they are, with the history after HEAD and hidden
    files; `*`: all. Unset: boxes see of a task image what its sessions see. See docs/boxes.md."""
    box_sizes: dict[str, BoxSize] = {
        "sm": BoxSize(cpus=1, memory_mb=2048),
        "md": BoxSize(cpus=2, memory_mb=4096),
        "lg": BoxSize(cpus=4, memory_mb=8192),
    }
    """JSON object: what the metadata key `size` stands for. A box without one is as any session; none gets more CPUs
    than the engine has."""
    box_user: str = "root"
    """Whose the commands and files of a box are when a request names no user; E2B's own templates say `user`."""
    box_default_s: float = 300.0
    """Life of a box whose request names none."""
    box_max_s: Annotated[float, Field(gt=0)] = 86400.0
    """Longest life of a box, however often its end is moved; idleness does not end it."""
    box_paused_max_s: Annotated[float, Field(ge=0)] = 14400.0
    """Seconds that a box may be paused, all its pauses together; then it goes. It keeps its memory and its slot. 0:
    boxes cannot be paused."""
    box_network: Literal["bridge", "none"] = "bridge"
    """Whether boxes have a network; a request may want less, never more."""
    box_networks: dict[str, Literal["bridge", "none"]] = {}
    """JSON object, pattern of image to bridge or none; the first that fits counts, before SANDBOX_BOX_NETWORK."""
    box_egress: Annotated[tuple[str, ...], NoDecode] | None = None
    """Comma-separated list of all that boxes, and sessions whose instance has a network, may reach: `host:port`,
    `host`, `10.0.0.0/8`, `10.0.0.0/8:443`; names are looked up when a container is made. A request may want less;
    nothing where this is empty, all that the network leads to where it is unset."""
    egress_image: str = "sandbox-egress"
    """Image with nft, which puts such rules in place; scripts/egress-image.sh makes it. See docs/boxes.md."""
    box_create_wait_s: float = 50.0
    """Bound on making a box, queueing and pulling included; E2B's clients give up at 60. A pull goes on after it."""
    box_login_path: Literal["image", "profile"] = "image"
    """PATH of a login shell (`bash -l`), which E2B's clients always use: the image's own, or what /etc/profile sets."""
    box_login_cache: bool = True
    """A login shell that is begun the same way a third time is begun without its profile, where that only tests files
    and sets variables (docs/boxes.md). Off: the profile runs each time, some 35 ms."""
    box_domain: Annotated[str, Field(pattern=r"^([A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*(:[0-9]+)?)?$")] = ""
    """Requests to the host `<port>-<sandbox id>.` and this go to that port of the box; E2B's clients are told it.
    Needs DNS and TLS in front (docs/boxes.md). Unset: no such names."""
    box_port_connections: Annotated[int, Field(gt=0)] = 64
    """Requests to ports of one box at a time; past it 503. Each takes some processes of the box's."""
    box_port_open_s: Annotated[float, Field(gt=0)] = 30.0
    """Bound on connecting to a port of a box."""
    box_port_idle_s: Annotated[float, Field(gt=0)] = 300.0
    """A request to a port of a box is cut off when nothing came or went for this long; 504 where it had no answer."""
    box_output_mb: Annotated[float, Field(gt=0)] = 16.0
    """Of each stream of a command of /v1/boxes, kept for its client: half from its head, half from its tail."""
    box_output_total_mb: Annotated[float, Field(gt=0)] = 256.0
    """Of all such commands that have ended and were not told yet; the oldest go first."""
    blobs_mb: Annotated[float, Field(gt=0)] = 4096.0
    """In SANDBOX_DATA_DIR, of files that were sent once to be copied into boxes; the least recently used go first."""
    box_timeout_exit: bool = False
    """A command that ran out of time ends with exit code 124, as `timeout` does it; else with the protocol's error."""

    journal_file_mb: Annotated[float, Field(gt=0, le=64)] = 4.0
    """Largest file that is written into a session by /v1/boxes/{sid}/files: its journal keeps the bytes, to write them
    again where the session is made anew. Larger ones are copied from /v1/blobs."""

    # Repositories
    search_image: str = "sandbox-search:latest"
    """Image of instances that name a repository and no image: bash, git, and what an agent searches with.
    `make search-image` makes it."""
    repositories_dir: Path | None = None
    """Where repositories are mirrored; unset: `repositories` in SANDBOX_DATA_DIR. Several servers may share one."""
    repositories_max_mb: Annotated[int, Field(ge=1)] = 51200
    """What all mirrors together may take; past it the least recently used go."""
    repository_url: str = "https://github.com/{repo}.git"
    """Where the repository of a row that names it owner/name lies: a URL, or an absolute path."""
    repository_folders: Annotated[tuple[Path, ...], NoDecode] = ()
    """Comma-separated folders on this host that instances may take repositories from."""
    repository_protocols: Annotated[tuple[Literal["https", "http", "git"], ...], NoDecode] = ("https",)
    """Comma-separated: what repositories are fetched by. There are never credentials."""
    repository_fetch_timeout_s: Annotated[float, Field(gt=0)] = 900.0
    """Bound on one attempt to fetch from a repository."""
    repository_silence_s: Annotated[float, Field(gt=0)] = 60.0
    """A fetch that shows no progress for this long is ended."""
    repository_attempts: Annotated[int, Field(ge=1)] = 3
    """Attempts to fetch before an instance's image counts as unavailable; the next start tries again."""
    repository_pause_s: Annotated[float, Field(ge=0)] = 2.0
    """Pause before the second attempt; twice as long before each further one."""
    repository_fetches: Annotated[int, Field(ge=1)] = 4
    """Repositories that are fetched at a time."""

    # Load
    start_queue: Annotated[int, Field(ge=0)] = 1024
    """Starts that may wait for a slot of this node; past it 503 at once, for the run with the most of them first."""
    run_sessions: Annotated[int, Field(ge=0)] = 0
    """Sessions and boxes that one run may have on this node at a time, with those that are starting; past it 429. All
    runs of a key with a name count as one. 0: no bound but SANDBOX_MAX_SESSIONS."""
    run_starts_per_min: Annotated[int, Field(ge=0)] = 0
    """Sessions and boxes that one run may begin on this node within a minute; past it 429. 0: no bound."""
    breaker_failures: Annotated[int, Field(ge=1)] = 5
    """Calls in a row that the Docker daemon leaves unanswered before starts and gradings are refused at once."""
    breaker_probe_s: float = 2.0
    """Pause between two looks whether a daemon that did not answer does again."""
    disk_path: Path | None = None
    """A path on the engine's disk; unset: the engine's own folder where it is on this host, else SANDBOX_DATA_DIR."""
    disk_period_s: float = 5.0
    """Pause between two looks at how full the engine's disk is."""
    disk_high_pct: Annotated[float, Field(gt=0, le=100)] = 85.0
    """Past so much of the engine's disk, images that no container uses go, the least recently used first."""
    disk_low_pct: Annotated[float, Field(gt=0, le=100)] = 75.0
    """Below so much, no further image goes."""
    disk_refuse_pct: Annotated[float, Field(gt=0, le=100)] = 95.0
    """From so much on, starts and gradings are refused and parked containers go."""
    pinned_images: Annotated[tuple[str, ...], NoDecode] = ()
    """Comma-separated patterns (`*`, `?`) of images that are never removed."""

    # Actions
    dialect: str = "openhands_xml"
    """How policies write actions where the instance does not say: openhands_xml, code, bash, tool_calls."""
    profile: str | None = None
    """How observations read: openhands-0.17 or plain; unset: the dialect's own."""
    tool_calls: Literal["parallel", "in_order"] = "parallel"
    """How the calls of one turn run (dialect tool_calls). parallel: those of `bash` at the same time, each in a fresh
    shell; a turn that has one of execute_bash or str_replace_editor, in order. in_order: all, one after another, those
    of `bash` in the persistent shell."""
    command_timeout_s: float = 100.0
    """For one action, waiting for the session's lock included; the earliest client gives up at 120."""
    soft_timeout_s: float | None = None
    """Set: a command that runs longer is left running (exit code -1) instead of killed at the hard timeout."""
    action_wait_s: float = 10.0
    """Added to SANDBOX_COMMAND_TIMEOUT_S for killing and waiting; past both an honest busy answer."""

    # Batches of commands
    exec_parallel: Annotated[int, Field(ge=1)] = 8
    """Commands of one session that run at a time: calls of one turn (dialect tool_calls), or of one POST to exec."""
    exec_node_parallel: int | None = Field(None, ge=1)
    """Commands of this node that run at a time; unset: 16 for each CPU, at least 64."""
    exec_commands: Annotated[int, Field(ge=1)] = 64
    """Commands in one batch; past it 422, or an error text for a policy's calls."""
    exec_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """For a command that names no timeout; all commands of a batch end within SANDBOX_COMMAND_TIMEOUT_S."""
    exec_output_bytes: Annotated[int, Field(ge=200)] = 30_000
    """Kept of a command's stdout, and of its stderr: half from the beginning, half from the end; a batch keeps at most
    1 MiB."""

    # Grading jobs
    grade_prefetch: Annotated[int, Field(ge=0)] = 4
    """Gradings that this node takes beyond SANDBOX_GRADE_CONCURRENCY, to choose their order, while other nodes could
    take them; the only node takes all."""
    grade_recover_s: Annotated[float, Field(gt=0)] = 30.0
    """Pause between two looks in SQL for patches that nobody grades, as after a loss of Redis."""

    # Patches and grading
    end_grace_s: Annotated[float, Field(ge=0)] = 5.0
    """How long the end of a session waits for the action that runs there; then it is interrupted, with its commands."""
    postprocess_timeout_s: float = 120.0
    """Bound on reading a session's tree for its patch. It is read twice at most, then the image's own in the same way:
    if that works within the bound, the session is scored as without a patch; if not, it is lost, and masked."""
    ending_max_s: Annotated[float, Field(gt=0)] = 900.0
    """Longest that a session's end may take with all its tries; past it the session is lost, and its container goes."""
    max_patch_mb: float = 64.0
    """Largest patch that is kept."""
    grade_concurrency: int | None = Field(None, ge=1)
    """Gradings of this node at a time; unset: three for every four CPUs, at least 2."""
    grade_ahead: Annotated[int, Field(ge=0)] = 4
    """Grading containers made ahead, while their sessions end or others are graded; 0: none."""
    grade_cpu_shares: Annotated[int, Field(ge=2)] = 256
    """CPU weight of a grading container; a session's is 1024."""
    grade_attempts: int = 3
    """Fresh containers tried before a grading ends as infra."""
    control_kept_s: Annotated[float, Field(ge=0)] = 300.0
    """How long a run of the unpatched tree counts that shows that patches are to blame for gradings that break off."""
    grade_timeout_s: float = 1800.0
    """Upper bound on any instance's tests."""
    judge_timeout_s: Annotated[float, Field(ge=1)] = 10.0
    """CPU seconds that judging one log may take, by the clock four times as many; past it the log gives no results."""
    judge_memory_mb: Annotated[int, Field(ge=64)] = 512
    """Memory that judging one log may take beyond the library's own; past it the log gives no results."""
    drift_check_s: Annotated[float, Field(ge=0)] = 3600.0
    """About so often an idle node grades gold of one sound instance again, to tell of one that fails now; 0: never."""
    grade_network: bool = False
    """Give grading containers a network."""
    runner_files: Literal["strip", "flag", "refuse"] = "strip"
    """What happens to changes of the test runner's own files that gold does not touch; always reported."""
    reward: str = "f2p_if_p2p_kept"
    """The reward function: f2p_if_p2p_kept, f2p_fraction (pays patches that break P2P tests too), resolved."""
    confirm: Literal["resolved", "off"] | float = "resolved"
    """Run each patch that earns something again under tests of which some are false (docs/grading.md): resolved, all of
    them; a number, that share of them; off."""
    confirm_runs: Annotated[int, Field(ge=2)] = 2
    """Fewest confirming runs of one patch; with 7 code that guesses at a single test of many gets through once in a
    hundred times at most, too."""
    unconfirmed: Literal["pay", "refuse"] = "pay"
    """What a patch earns whose instance has no false tests (docs/grading.md): pay, its reward, though it may be a fake;
    refuse, 0.0, not masked, so that such instances teach nothing."""
    certify_concurrency: int | None = Field(None, ge=1)
    """Task images that are sealed, and instances whose false tests are tried, at a time, for gradings that have no slot
    meanwhile; unset: half of SANDBOX_GRADE_CONCURRENCY, at least 1."""
    certify_timeout_s: Annotated[float, Field(gt=0)] = 900.0
    """No further run is begun after this long to find out which false tests of an instance can be used."""
    reward_wait_s: float = 280.0
    """Longest wait of /compute_reward for a grading under way, then `pending`; the client gives up at 300."""
    localization_rewards: str = "multilevel"
    """How answers of code search are scored where neither session nor instance says: a YAML file, or one of the
    compositions in docs/rewards.md."""
    grade_batch: Annotated[int, Field(ge=1)] = 512
    """Items of one POST /v1/grade."""
    allow_ungradable: bool = False
    """Start instances that have no grader."""
    swebench4_dir: Path | None = None
    """Folder with swebench 4.1.0 for converting old rows; unset: share/swebench-4.1.0 of the environment."""

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
        """SANDBOX_NODE_URL in force."""
        named = socket.gethostname() if self.host in ("0.0.0.0", "::", "") else self.host
        return (self.node_url or f"http://{named}:{self.port}").rstrip("/")

    @property
    def repositories(self) -> Path:
        """SANDBOX_REPOSITORIES_DIR in force."""
        return self.repositories_dir or self.data_dir / "repositories"

    @property
    def boots(self) -> int:
        """SANDBOX_BOOT_CONCURRENCY in force: on two CPUs 16 starts took as long by 3 as by 8 at a time."""
        return self.boot_concurrency or max(4, 2 * (os.cpu_count() or 1))

    @property
    def gradings(self) -> int:
        """SANDBOX_GRADE_CONCURRENCY in force: the rest of the CPUs is for live sessions; on two, 1 to 4 took equal."""
        return self.grade_concurrency or max(2, (os.cpu_count() or 1) * 3 // 4)

    @property
    def certifications(self) -> int:
        """SANDBOX_CERTIFY_CONCURRENCY in force."""
        return self.certify_concurrency or max(1, self.gradings // 2)

    @property
    def database(self) -> str:
        """The SQLAlchemy URL in force."""
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
