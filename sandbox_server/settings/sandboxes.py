"""The container engine, and the sandboxes of tasks."""

from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _divisible(networks: IPv4Network) -> IPv4Network:
    if networks.prefixlen > 28:
        raise ValueError("a range of at least 16 addresses is needed, such as 10.213.0.0/16")
    return networks


class SandboxSettings(BaseModel):
    """The container engine, and the sandboxes of tasks."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    # Engine
    engine: Literal["docker", "podman"] = "docker"
    """Container engine. `podman`: its service (`podman system service`)."""
    docker_url: str | None = None
    """Socket of the engine; unset: DOCKER_HOST, else the engine's local socket (Podman's: the user's own in
    XDG_RUNTIME_DIR, else /run/podman/podman.sock)."""
    docker_timeout_s: float = 60.0
    """Timeout of one call to the engine."""
    runtime: str | None = None
    """OCI runtime of the containers (runsc, kata); unset: the engine's default."""
    seccomp: str = "own"
    """System calls that containers may make. `own`: the server's profile, which allows fewer than Docker's newest
    default. `engine`: the engine's default. Else the path of a profile in Docker's format. gVisor and Kata ignore it.
    """
    fifo_dir: str = "auto"
    """Folder for the FIFOs that carry the bytes of shells in a local engine's containers. Engine and server must see it
    under the same path. `auto`: /run/sandbox-server for root, else `fifos` in SANDBOX_DATA_DIR. `off`: the engine
    carries the bytes, which takes more CPU; it also does so where FIFOs do not work."""
    pull: Literal["missing", "never"] = "missing"
    """Whether missing task images are pulled."""
    pull_timeout_s: float = 540.0
    """Timeout of one image pull."""

    # Sandboxes
    memory_mb: int = 4096
    """Memory limit of a container; an instance may set its own."""
    cpus: float = 2.0
    """CPU limit of a container."""
    busy_cpu_shares: Annotated[int, Field(ge=2, le=1024)] = 256
    """CPU weight of a session or box that computes without a pause while half of the host's CPU time is in use, so that
    short actions of others wait less behind it. If the kernel has an idle class for control groups, the container is in
    that class instead, as long as it gets enough CPU time there. Other sessions and boxes have 1024; the value 1024
    turns both off. Gradings have SANDBOX_GRADE_CPU_SHARES. No effect if the engine runs on another host."""
    pids: int = 512
    """Limit on processes and threads of a container."""
    open_files: int = 4096
    """Limit on open files of a process; the Docker daemon's own hard limit also applies."""
    disk_mb: int = 10240
    """Size limit of one file, and of a container's writable layer, where each file and folder counts 4 KiB in addition
    to its length. A grading that exceeds the limit is stopped."""
    service_memory_mb: Annotated[int, Field(ge=16)] = 1024
    """Memory limit of each service beside a sandbox (a task with several containers); a task may set less."""
    service_cpus: Annotated[float, Field(gt=0)] = 1.0
    """CPU limit of each service; a task may set less."""
    service_pids: Annotated[int, Field(ge=8)] = 256
    """Limit on processes and threads of each service."""
    service_volume_mb: Annotated[int, Field(ge=1)] = 256
    """Size limit of each volume of services. Volumes are in memory, and count as memory of the services that write."""
    service_start_s: Annotated[float, Field(gt=0)] = 120.0
    """Limit on the start of a sandbox's services, until all of them are healthy, and after that on the health check of
    the sandbox's own container; then the start fails. The same limit holds for each part of the start of a task's
    step."""
    service_networks: Annotated[IPv4Network, AfterValidator(_divisible)] = IPv4Network("10.213.0.0/16")
    """Address range for the networks of sandboxes with services, 16 addresses each. From such a network, nothing
    outside of it can be reached, not even the host."""
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
