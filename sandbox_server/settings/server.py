"""The server itself, its state, and the nodes that it works with."""

import socket
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic_settings import NoDecode


class ServerSettings(BaseModel):
    """The server itself, its state, and the nodes that it works with."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    # Server
    host: str = "127.0.0.1"
    """Address to listen on. Anything but loopback needs SANDBOX_API_KEYS or SANDBOX_ALLOW_INSECURE=1."""
    port: Annotated[int, Field(ge=0, le=65535)] = 5000
    """Port to listen on."""
    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    """Comma-separated API keys. If any is set, every path except /healthz requires one, as Bearer token, X-API-Key or
    Basic password. Pages under /ui ask for it in a form; only that form and its style sheet are served without a key.

    An entry `name=key`, with a key of 8 characters or more, gives the key a name: its starts belong to the run of that
    name, and it can see and use only what was started with it. The whole entry is also accepted as a key, with the same
    rights, but names no run. Any other entry is an operator's key, also one with a shorter text after `=`.
    """
    view_keys: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    """Comma-separated read-only keys: they see everything that operators see, including metrics. They take effect only
    together with SANDBOX_API_KEYS."""
    allow_insecure: bool = False
    """Allow a non-loopback address without API keys."""
    data_dir: Path = Path.home() / ".local" / "share" / "sandbox-server"
    """Folder for the server's files: the embedded Redis, SQLite, repository mirrors, blobs and checkpoints."""
    data_min_free_mb: Annotated[float, Field(ge=0)] = 256.0
    """Minimum free space on the disk of SANDBOX_DATA_DIR. Below it no session, box or grading starts and no blob is
    accepted, so that running sessions can still store their journals and patches."""
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
    """Time limit for receiving a request's body; a slower request gets 408. Does not apply to file uploads into boxes
    and other streams."""
    bodies_mb: Annotated[float, Field(gt=0)] = 256.0
    """Limit on the total size of request bodies held at a time. A body counts with its Content-Length (without one,
    with SANDBOX_MAX_BODY_MB) until its request is over, and takes two to three times as much memory. Bodies up to 64 KB
    do not count; a quarter of the limit is reserved for those up to 1 MB. One body of SANDBOX_MAX_BODY_MB is always
    accepted."""
    bodies_wait_s: Annotated[float, Field(ge=0)] = 30.0
    """How long a request waits for room within SANDBOX_BODIES_MB; then it gets 503 with Retry-After."""
    keep_alive_s: Annotated[float, Field(gt=0)] = 620.0
    """Seconds that an idle connection stays open. E2B's clients may reuse a connection after 300 s without use."""
    stop_s: Annotated[float, Field(gt=0)] = 20.0
    """Longest time from SIGTERM to the server's end. Running requests get half of it. Work that is not finished by then
    is left to the next server."""
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
    """Interval between writes of acknowledged actions to SQL."""
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
    restore: Literal["replay", "off"] = "replay"
    """What happens to a dead node's session when it is next used: replay runs its actions again in a fresh container;
    off gives it up (verdict infra, masked)."""
    restore_timeout_s: float = 600.0
    """Limit on running a session's actions again. A dead node's session is lost if they take longer, or took longer at
    first; a copy of a session is refused if they took longer at first."""
    checkpoints_mb: Annotated[float, Field(gt=0)] = 4096.0
    """Limit on the total size of checkpoints in SANDBOX_DATA_DIR: stored states of sessions and boxes, which their
    copies start from. Beyond it the least recently used are removed, except snapshots and the checkpoints of sessions
    and boxes without a container."""
    checkpoints_url: str = ""
    """Object store that checkpoints are copied to, so that any node can restore and copy any session: s3://BUCKET/PREFIX,
    gs://BUCKET/PREFIX, az://ACCOUNT/CONTAINER/PREFIX, or file:///FOLDER, a folder that all nodes mount. Credentials and
    endpoint come from the environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT, ...). Set a lifecycle rule that deletes old
    objects in checkpoints/ and blocks/, but not in snapshots/, which their owners delete. Empty: no object store."""
    checkpoint_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """Limit on taking a session's checkpoint, on giving its state to a container, and on copying it to or from
    SANDBOX_CHECKPOINTS_URL."""
    checkpoint_every: Annotated[int, Field(ge=0)] = 0
    """Number of actions after which a session gets another checkpoint. Only the actions after a checkpoint have to run
    again when the session's host dies, or for a copy of an earlier state. 0: no such checkpoints."""
    checkpoint_every_s: Annotated[float, Field(ge=0)] = 0.0
    """Like SANDBOX_CHECKPOINT_EVERY, but counts the seconds that actions ran. 0: no such checkpoints."""
    hibernate_s: Annotated[float, Field(ge=0)] = 0.0
    """A session without an action for this long, or a box without a request, goes to sleep unless a program runs in it:
    a checkpoint replaces its container until the next action or request. SANDBOX_SESSION_IDLE_S still ends it. 0:
    never."""
