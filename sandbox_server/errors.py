"""Every error the service raises on purpose.

ServiceError
├── RequestError            the caller can mend it; 4xx
│   ├── MalformedRequest    the body is not what the endpoint takes
│   ├── RequestTooLarge     the body is past SANDBOX_MAX_BODY_MB
│   ├── BodyTooSlow         the body did not come within SANDBOX_BODY_TIMEOUT_S
│   ├── Unauthorized        no key, or not one of ours
│   ├── UnknownInstance     no such instance in the catalogue
│   ├── UnknownSession      no such sid
│   ├── UnknownReceipt      no such receipt
│   ├── UnknownNode         no such node, or it is dead
│   ├── UnknownUser         the container has no such user
│   ├── UnknownProcess      no such command runs in the box
│   ├── UnknownImage        no box may run this image, or it is nowhere to be had
│   ├── IsBox               asked of a box what only a session with an instance has
│   ├── UnknownBlob         this node holds no file of this content
│   ├── UnknownFile         no such file in a box
│   ├── FileUnusable        a path in a box that cannot be read or written
│   ├── UnknownCommand      no such command of a box
│   ├── CommandLost         a command's end is not known any more
│   ├── SandboxPaused       the box is paused: nothing runs in it until it is resumed
│   ├── SandboxRunning      the box is not paused, so it cannot be resumed
│   ├── SessionStillLive    asked for what exists only after the end
│   ├── SessionOver         the session has ended, nothing can run in it
│   ├── RunOfAnother        the run was started with another API key
│   ├── Forbidden           the API key may not do this
│   ├── OverQuota           the run has as much as a run may have; ask again later
│   ├── Ungradable          the instance has no grader
│   └── RowRejected         an imported row is unusable
├── CapacityError           full for now; 503 with Retry-After
├── CommandBroken           what a sandbox said of a command or a file cannot be read: the sandbox's own doing
├── SessionBusy             another request holds the session; ask again
├── SessionRestoring        its host died, it is being made anew; ask again
└── InfrastructureError     ours to mend; never a reward, never an observation's text
    ├── SandboxLost         the container is gone or dead
    ├── ActionInterrupted   the service was interrupted while the action ran; its output is lost
    ├── SandboxDiskFull     the container's writable layer, or the engine's disk, is full
    ├── DataDiskFull        the disk of SANDBOX_DATA_DIR has no room for anything new
    ├── SandboxExhausted    the container can take no further process
    ├── ImageUnavailable    the task image is not here and cannot be had
    │   └── RepositoryUnavailable  the repository that it is made of cannot be had
    ├── EngineUnavailable   the Docker daemon does not answer
    ├── EgressUnavailable   what a sandbox may reach could not be enforced, so it was not started
    ├── StateUnavailable    Redis does not answer
    ├── CatalogueUnavailable  SQL does not answer
    ├── NodeUnreachable     the node that has the session does not answer, or is dead and cannot be replaced yet
    └── GraderBroken        the grading library or its worker failed

OwnedElsewhere is no error and none of these: the request is another node's, and `app` takes it there.

Branch on the type or on `code`, never on the message. On the wire: `{"code", "detail", "retryable"}`; with status 503
also `reason`, `position` and `estimate_s`.
"""

import math

_UNKNOWN_S = 10
_LONGEST_S = 60


class ServiceError(Exception):
    """Base of all; `detail` says in one sentence what happened and what to do next."""

    code = "service_error"
    http_status = 500
    retryable = False
    reason = ""
    """What a start lacked, one word for machines: slots, queue, daemon, disk, image, draining; "" for all else."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class RequestError(ServiceError):
    """The request cannot be served as it is; sending it again changes nothing."""

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
    """The body did not come within SANDBOX_BODY_TIMEOUT_S; nothing was done."""

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
    """No session has this sid, or it ended longer ago than anything is kept."""

    code = "unknown_session"
    http_status = 404


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
    """No file of this content was stored on this node, or it had to go for others; send it again."""

    code = "unknown_blob"
    http_status = 404


class UnknownFile(RequestError):
    """The box has no file of this path."""

    code = "unknown_file"
    http_status = 404


class FileUnusable(RequestError):
    """The path cannot be read or written: a folder is there, or a file where a folder should be, or a mount."""

    code = "file_unusable"
    http_status = 409


class UnknownCommand(RequestError):
    """No command of this id was begun in the box."""

    code = "unknown_command"
    http_status = 404


class CommandLost(RequestError):
    """The command was begun, but what became of it is not known: the server was restarted, or it ended long ago."""

    code = "command_lost"
    http_status = 410


class UnknownProcess(RequestError):
    """The box has no command of this number or tag, or it has ended."""

    code = "unknown_process"
    http_status = 404


class UnknownImage(RequestError):
    """A box cannot be of this image: it is not allowed, or it is neither on the engine nor to be pulled."""

    code = "unknown_image"
    http_status = 404


class SandboxPaused(RequestError):
    """The box is paused: resume it first. Nothing was run."""

    code = "sandbox_paused"
    http_status = 409


class SandboxRunning(RequestError):
    """The box is not paused, so there is nothing to resume."""

    code = "sandbox_running"
    http_status = 409


class IsBox(RequestError):
    """The session runs an image, not an instance: it takes no actions and nothing of it is graded."""

    code = "is_box"
    http_status = 409


class SessionStillLive(RequestError):
    """The patch exists only after the session's end."""

    code = "session_live"
    http_status = 409


class SessionOver(RequestError):
    """The session has ended; nothing can run in it any more."""

    code = "session_ended"
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
    """The API key may not do this: it only looks, or what is asked for concerns all runs."""

    code = "forbidden"
    http_status = 403


class OverQuota(RequestError):
    """The run has as many sessions, or began as many lately, as a run may; nothing was started."""

    code = "over_quota"
    http_status = 429
    retryable = True

    def __init__(self, detail: str, *, retry_after_s: int) -> None:
        """`retry_after_s`: it may be worth asking again by then."""
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
        """`position` in the line that it waited in, 1 the next; `estimate_s` until its turn; None: not known."""
        super().__init__(detail)
        self.reason = reason
        self.position = position
        self.estimate_s = estimate_s

    @property
    def retry_after_s(self) -> int:
        """Whole seconds after which asking again makes sense: the estimate, within 1 to 60; 10 where it is not known.

        No jitter: places in the line are fair, whoever comes back first.
        """
        return _UNKNOWN_S if self.estimate_s is None else min(_LONGEST_S, max(1, math.ceil(self.estimate_s)))


class CommandBroken(ServiceError):
    """What the sandbox said in place of a command's end, or of an answer about its files, cannot be read."""

    code = "command_broken"
    http_status = 409

    def __init__(self, what: str) -> None:
        """`what` was being told, as the subject of a sentence."""
        super().__init__(
            f"{what} could not be read: a process in the sandbox writes into the service's own streams, or has replaced"
            " the image's programs; look at what took effect, then try again or start a new session"
        )


class SessionBusy(ServiceError):
    """Another request on the same sid did not end within this one's wait; nothing was run."""

    code = "session_busy"
    http_status = 409
    retryable = True


class SessionRestoring(ServiceError):
    """The session's host died and it is being made anew on another one; nothing was run."""

    code = "session_restoring"
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
    """The service was interrupted while this action ran; its output is lost and it may have taken effect in part."""

    code = "action_interrupted"
    http_status = 500
    retryable = False  # its idempotency key stands for this end


class SandboxDiskFull(InfrastructureError):
    """The sandbox may write no more; the session goes on once files are removed."""

    code = "sandbox_disk_full"
    reason = "disk"
    http_status = 507


class DataDiskFull(InfrastructureError):
    """The server's own disk has no room, so this was not kept; it goes on once there is room."""

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
        """`absent`: no try will change it, for pulling is off or the registry says that there is no such image."""
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
    """What a sandbox may reach could not be enforced, so it was not started, or keeps what it had."""

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
    """The node that has the session does not answer; whether what was asked has happened is not known."""

    code = "node_unreachable"
    http_status = 503
    retryable = True


class OwnedElsewhere(Exception):
    """The session, or the place for it, is on another node: the request is to be sent there."""

    def __init__(self, node: str) -> None:
        super().__init__(f"node {node}")
        self.node = node
