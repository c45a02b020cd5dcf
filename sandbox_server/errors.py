"""Every error the service raises on purpose.

ServiceError
├── RequestError            the caller can fix it; 4xx
│   ├── MalformedRequest    the body does not match the endpoint
│   ├── RequestTooLarge     the body is larger than SANDBOX_MAX_BODY_MB
│   ├── BodyTooSlow         the body did not arrive within SANDBOX_BODY_TIMEOUT_S
│   ├── Unauthorized        no API key, or an unknown one
│   ├── UnknownInstance     no such instance in the catalogue
│   ├── UnknownSession      no such sid
│   ├── UnknownReceipt      no such receipt
│   ├── UnknownNode         no such node, or it is dead
│   ├── UnknownUser         the container has no such user
│   ├── UnknownProcess      no such command runs in the box
│   ├── UnknownImage        boxes may not run this image, or it cannot be found
│   ├── UnknownSnapshot     no such snapshot of a box, or its files are gone
│   ├── TooManySnapshots    the API key has as many snapshots as a key may
│   ├── IsBox               the request needs a session with an instance, not a box
│   ├── UnknownBlob         this node has no blob with this hash
│   ├── UnknownFile         no such file in a box
│   ├── FileUnusable        a path in a box that cannot be read or written
│   ├── UnknownCommand      no such command of a box
│   ├── CommandLost         the end of a command is no longer known
│   ├── SandboxPaused       the box is paused and must be resumed first
│   ├── SandboxRunning      the box is not paused, so it cannot be resumed
│   ├── SessionStillLive    the request needs an ended session
│   ├── NoPatch             the session is over, and no patch of it is kept
│   ├── SessionOver         the session has ended; nothing can run in it
│   ├── NotForkable         what is in the sandbox cannot be copied
│   ├── StepClosed          the next step of a task may not begin; the task is over
│   ├── RunOfAnother        the run was started with another API key
│   ├── Forbidden           the API key may not do this
│   ├── OverQuota           the run is at its quota; ask again later
│   ├── Ungradable          the instance has no grader
│   └── RowRejected         an imported row is unusable
├── CapacityError           full for now; 503 with Retry-After
├── CommandBroken           a sandbox's reply about a command or file cannot be parsed; the sandbox is to blame
├── SessionBusy             another request holds the session; ask again
├── SessionRestoring        its host died and it is being restored; ask again
├── Stopping                the server ended before the request was done; send it again
└── InfrastructureError     the service is to blame; never a reward, never an observation's text
    ├── SandboxLost         the container is gone or dead
    ├── ActionInterrupted   the service was interrupted while the action ran; its output is lost
    ├── SandboxDiskFull     the container's writable layer, or the engine's disk, is full
    ├── DataDiskFull        the disk of SANDBOX_DATA_DIR is full
    ├── SandboxExhausted    the container can start no further process
    ├── ImageUnavailable    the task image is not on the engine and cannot be pulled
    │   └── RepositoryUnavailable  the image's repository cannot be fetched
    ├── EngineUnavailable   the Docker daemon does not answer
    ├── EgressUnavailable   the network rules could not be applied, so the sandbox was not started
    ├── StateUnavailable    Redis does not answer
    ├── CatalogueUnavailable  SQL does not answer
    ├── NodeUnreachable     the session's node does not answer, or is dead and not replaced yet
    └── GraderBroken        the grading library or its worker failed

OwnedElsewhere is not an error and not in this tree: `app` forwards the request to the node that owns the session.

Branch on the type or on `code`, never on the message. On the wire: `{"code", "detail", "retryable"}`; with status 503
also `reason`, `position` and `estimate_s`.
"""

import math

_UNKNOWN_S = 10
_LONGEST_S = 60


class ServiceError(Exception):
    """Base class. `detail` says in one sentence what happened and what to do next."""

    code = "service_error"
    http_status = 500
    retryable = False
    reason = ""
    """What a start lacked, in one word: slots, queue, daemon, disk, data, image, bodies, draining; else ""."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class RequestError(ServiceError):
    """The request cannot be served as it is; repeating it does not help."""

    code = "bad_request"
    http_status = 400


class MalformedRequest(RequestError):
    """The body is not JSON, not an object, or a field is missing or of the wrong type."""

    code = "malformed_request"
    http_status = 422


class RequestTooLarge(RequestError):
    """The body is larger than SANDBOX_MAX_BODY_MB."""

    code = "request_too_large"
    http_status = 413


class BodyTooSlow(RequestError):
    """The body did not arrive within SANDBOX_BODY_TIMEOUT_S; nothing was done."""

    code = "body_too_slow"
    http_status = 408
    retryable = True


class Unauthorized(RequestError):
    """No API key, or not one of SANDBOX_API_KEYS."""

    code = "unauthorized"
    http_status = 401


class UnknownInstance(RequestError):
    """The catalogue holds no such instance id or hash."""

    code = "unknown_instance"
    http_status = 404


class UnknownSession(RequestError):
    """No session has this sid, or it ended longer ago than records are kept."""

    code = "unknown_session"
    http_status = 404

    @classmethod
    def of(cls, sid: str) -> "UnknownSession":
        """The error, with the same text if there is no such session and if the caller's key may not know of it."""
        return cls(f"no session {sid[:60]}: its start failed, it ended long ago, or it belongs to another API key")


class UnknownReceipt(RequestError):
    """No receipt has this id."""

    code = "unknown_receipt"
    http_status = 404


class UnknownNode(RequestError):
    """No node of this name has a heartbeat."""

    code = "unknown_node"
    http_status = 404


class UnknownUser(RequestError):
    """The sandbox's image has no such user; nothing was run."""

    code = "unknown_user"


class UnknownBlob(RequestError):
    """No blob with this hash is on this node, or it was removed to make room; send it again."""

    code = "unknown_blob"
    http_status = 404


class UnknownFile(RequestError):
    """The box has no file at this path."""

    code = "unknown_file"
    http_status = 404


class FileUnusable(RequestError):
    """The path cannot be read or written: a folder is there, or a file where a folder should be, or a mount."""

    code = "file_unusable"
    http_status = 409


class UnknownCommand(RequestError):
    """No command with this id was started in the box."""

    code = "unknown_command"
    http_status = 404


class CommandLost(RequestError):
    """The command was started, but its end is not known any more: server or engine restarted, or it ended long ago."""

    code = "command_lost"
    http_status = 410


class UnknownProcess(RequestError):
    """The box has no running command with this number or tag."""

    code = "unknown_process"
    http_status = 404


class UnknownImage(RequestError):
    """A box cannot use this image: it is not allowed, or it is not on the engine and cannot be pulled."""

    code = "unknown_image"
    http_status = 404


class UnknownSnapshot(RequestError):
    """The API key has no such snapshot, or the snapshot's files are lost."""

    code = "unknown_snapshot"
    http_status = 404


class TooManySnapshots(RequestError):
    """The API key has as many snapshots, or as many bytes in them, as a key may; delete some."""

    code = "too_many_snapshots"
    http_status = 413


class SandboxPaused(RequestError):
    """The box is paused, or the container of a session frozen from outside: resume it first. Nothing new was run."""

    code = "sandbox_paused"
    http_status = 409


class SandboxRunning(RequestError):
    """The box is not paused, so there is nothing to resume."""

    code = "sandbox_running"
    http_status = 409


class IsBox(RequestError):
    """The session runs an image, not an instance: it takes no actions and is not graded."""

    code = "is_box"
    http_status = 409


class SessionStillLive(RequestError):
    """The patch exists only after the session's end."""

    code = "session_live"
    http_status = 409


class NoPatch(RequestError):
    """The session is over and has no patch: it was lost before one was taken, or the patch is gone from SQL."""

    code = "no_patch"
    http_status = 410


class SessionOver(RequestError):
    """The session has ended; nothing can run in it."""

    code = "session_ended"
    http_status = 409


class NotForkable(RequestError):
    """The session cannot be copied, because of what is in its sandbox."""

    code = "not_forkable"
    http_status = 409


class StepClosed(RequestError):
    """The next step of a task may not begin; the task is over, with the reward of the steps so far."""

    code = "step_closed"
    http_status = 409


class Ungradable(RequestError):
    """The instance has no grader, so no reward could ever be given."""

    code = "ungradable"
    http_status = 409


class RunOfAnother(RequestError):
    """The run was started with another API key."""

    code = "run_of_another"
    http_status = 403


class Forbidden(RequestError):
    """The API key may not do this: it is read-only, or the request concerns all runs."""

    code = "forbidden"
    http_status = 403


class OverQuota(RequestError):
    """The run holds, starts or has used as much as a run may, or its key sent too much; nothing was done."""

    code = "over_quota"
    http_status = 429
    retryable = True

    def __init__(self, detail: str, *, retry_after_s: int) -> None:
        """`retry_after_s`: seconds after which a retry may succeed."""
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class RowRejected(RequestError):
    """A row of an imported file cannot become an instance; nothing of the file was imported."""

    code = "row_rejected"

    def __init__(self, detail: str, *, line: int | None = None) -> None:
        super().__init__(detail if line is None else f"line {line}: {detail}")
        self.line = line


class CapacityError(ServiceError):
    """No room within the request's bound; nothing was started."""

    code = "no_capacity"
    http_status = 503
    retryable = True

    def __init__(
        self, detail: str, *, reason: str, position: int | None = None, estimate_s: float | None = None
    ) -> None:
        """`position`: 1-based place in the queue; `estimate_s`: seconds until its turn; None if unknown."""
        super().__init__(detail)
        self.reason = reason
        self.position = position
        self.estimate_s = estimate_s

    @property
    def retry_after_s(self) -> int:
        """Whole seconds after which to retry: the estimate, clamped to 1 to 60; 10 if it is unknown.

        No jitter is needed: the queue is fair, whoever comes back first.
        """
        return _UNKNOWN_S if self.estimate_s is None else min(_LONGEST_S, max(1, math.ceil(self.estimate_s)))


class CommandBroken(ServiceError):
    """The sandbox's reply about a command's end or about its files cannot be parsed."""

    code = "command_broken"
    http_status = 409

    def __init__(self, what: str) -> None:
        """`what` could not be parsed; it is used as the subject of a sentence."""
        super().__init__(
            f"{what} could not be read: a process in the sandbox writes into the service's own streams, or has replaced"
            " the image's programs; look at what took effect, then try again or start a new session"
        )


class SessionBusy(ServiceError):
    """Another request held the session for longer than this one could wait; nothing was run."""

    code = "session_busy"
    http_status = 409
    retryable = True


class SessionRestoring(ServiceError):
    """The session's host died and the session is being restored on another one; nothing was run."""

    code = "session_restoring"
    http_status = 503
    retryable = True


class Stopping(ServiceError):
    """The server ended while the request ran; it may have taken effect."""

    code = "stopping"
    http_status = 503
    retryable = True


class InfrastructureError(ServiceError):
    """A part of the service failed; the policy is not to blame and no reward may follow."""

    code = "infrastructure"
    http_status = 503
    retryable = True


class SandboxLost(InfrastructureError):
    """The container died under a live session, or is gone; its files are lost."""

    code = "sandbox_lost"
    http_status = 500
    retryable = False  # its files are gone; start a new session


class ActionInterrupted(InfrastructureError):
    """The service was interrupted while this action ran; its output is lost, and it may have taken partial effect."""

    code = "action_interrupted"
    http_status = 500
    retryable = False  # its idempotency key stands for this outcome


class SandboxDiskFull(InfrastructureError):
    """The sandbox may not write more; the session can continue once files are removed."""

    code = "sandbox_disk_full"
    reason = "disk"
    http_status = 507


class DataDiskFull(InfrastructureError):
    """The server's own disk is full, so this was not stored; it works again once there is space."""

    code = "data_disk_full"
    reason = "data"
    http_status = 507


class SandboxExhausted(InfrastructureError):
    """The container runs but is at its limit of processes or memory; its shell can still be interrupted."""

    code = "sandbox_exhausted"


class ImageUnavailable(InfrastructureError):
    """The task image is not on this engine and could not be pulled."""

    code = "image_unavailable"
    reason = "image"

    def __init__(self, detail: str, *, absent: bool = False) -> None:
        """`absent`: retrying is useless, because pulling is off or the registry has no such image."""
        super().__init__(detail)
        self.absent = absent


class RepositoryUnavailable(ImageUnavailable):
    """The repository could not be fetched, has no such commit, or may not be fetched at all."""

    code = "repository_unavailable"


class EngineUnavailable(InfrastructureError):
    """The Docker daemon does not answer, or answered with a fault of its own."""

    code = "engine_unavailable"
    reason = "daemon"


class EgressUnavailable(InfrastructureError):
    """The network rules of a sandbox could not be applied, so it was not started, or keeps its old rules."""

    code = "egress_unavailable"


class StateUnavailable(InfrastructureError):
    """Redis does not answer."""

    code = "state_unavailable"


class CatalogueUnavailable(InfrastructureError):
    """The SQL database does not answer."""

    code = "catalogue_unavailable"


class GraderBroken(InfrastructureError):
    """The grading library, its worker process or the instance's grading data failed."""

    code = "grader_broken"


class NodeUnreachable(InfrastructureError):
    """The session's node does not answer; it is unknown whether the request took effect."""

    code = "node_unreachable"
    http_status = 503
    retryable = True


class OwnedElsewhere(Exception):
    """The session, or its place to start, belongs to another node: forward the request there."""

    def __init__(self, node: str) -> None:
        super().__init__(f"node {node}")
        self.node = node
