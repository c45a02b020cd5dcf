"""The client's errors. None of them ever contains a key.

SandboxError
├── SettingsError          a base URL or an environment variable is unusable
├── Unreachable            no host answered within the retries
├── CallTimedOut           the call's own timeout passed
├── BadAnswer              the answer violates the protocol; is there a proxy in between?
├── RequestRejected        4xx: retrying does not help
│   ├── Unauthorized
│   ├── UnknownInstance
│   ├── UnknownSession     the session or box does not exist, or has ended
│   ├── UnknownImage       no box can use this image
│   ├── UnknownFile        the box has no such file
│   ├── UnknownBlob        the box's host does not have this content
│   ├── CommandLost        a command was started but its result is unknown: the service was restarted
│   └── Ungradable         the instance has no grader
├── ServiceFault           5xx after the retries
│   ├── NoCapacity         no capacity within the service's time limit
│   └── SandboxLost        the container is gone, with everything in it
├── RolloutMasked          the rollout says nothing about the policy; leave it out of the loss
├── CommandFailed          a command that had to succeed failed; also a RuntimeError
└── CommandTimedOut        a command exceeded its timeout and was killed with its child processes

Branch on the type or on `code` (from the service), never on the message.
"""

from __future__ import annotations

from collections.abc import Mapping


class SandboxError(Exception):
    """Base class; `detail` says in one sentence what happened."""

    code = "client_error"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class SettingsError(SandboxError):
    """A base URL or an environment variable is missing or invalid."""

    code = "settings"


class Unreachable(SandboxError):
    """No host accepted the request, or the connection broke, and the retries are used up."""

    code = "unreachable"


class CallTimedOut(SandboxError):
    """No answer within the call's timeout; an action may still be running on the service."""

    code = "timed_out"


class BadAnswer(SandboxError):
    """The answer is not a JSON object, or lacks fields that the protocol requires."""

    code = "bad_answer"


class _AnsweredError(SandboxError):
    reason = ""
    """For a 503: what was lacking (slots, queue, daemon, disk, data, image, bodies, draining); "" if not given."""
    position: int | None = None
    """For a 503: 1-based position in the queue."""
    estimate_s: float | None = None
    """For a 503: the service's estimate of the remaining wait in seconds."""

    def __init__(self, detail: str, *, code: str, status: int) -> None:
        super().__init__(f"HTTP {status} {code}: {detail}")
        self.detail = detail
        self.code = code
        self.status = status


class RequestRejected(_AnsweredError):
    """The service refuses this request; retrying does not help."""


class Unauthorized(RequestRejected):
    """Missing or unknown API key."""


class UnknownInstance(RequestRejected):
    """The catalogue has no such instance."""


class UnknownSession(RequestRejected):
    """No live session or box has this sid."""


class UnknownImage(RequestRejected):
    """The service has no such image, or boxes may not run it."""


class UnknownFile(RequestRejected):
    """The box has no file at this path."""


class UnknownBlob(RequestRejected):
    """The box's host does not have this content."""


class CommandLost(RequestRejected):
    """The command was started once; its result is unknown, and it is not run again."""


class Ungradable(RequestRejected):
    """The instance has no grader, so its sessions could never get a reward."""


class ServiceFault(_AnsweredError):
    """A fault of the service that persisted through the retries; says nothing about the policy."""


class NoCapacity(ServiceFault):
    """No capacity within the service's time limit; nothing was started. See `reason`, `position`, `estimate_s`."""


class SandboxLost(ServiceFault):
    """The container is gone, with everything in it."""


class RolloutMasked(SandboxError):
    """The service failed in this rollout or masked its reward: it says nothing about the policy."""

    def __init__(self, detail: str, *, code: str) -> None:
        super().__init__(detail)
        self.code = code


class CommandFailed(SandboxError, RuntimeError):
    """A command that had to succeed ended with an exit code other than 0."""

    code = "command_failed"

    def __init__(self, detail: str, *, exit_code: int) -> None:
        super().__init__(detail)
        self.exit_code = exit_code


class CommandTimedOut(SandboxError):
    """A command exceeded its timeout and was killed with its child processes; `stdout` and `stderr` until then."""

    code = "command_timed_out"

    def __init__(self, detail: str, *, stdout: str, stderr: str) -> None:
        super().__init__(detail)
        self.stdout = stdout
        self.stderr = stderr


_BY_CODE: Mapping[str, type[_AnsweredError]] = {
    "unauthorized": Unauthorized,
    "unknown_instance": UnknownInstance,
    "unknown_session": UnknownSession,
    "ungradable": Ungradable,
    "no_capacity": NoCapacity,
    "unknown_image": UnknownImage,
    "unknown_file": UnknownFile,
    "unknown_blob": UnknownBlob,
    "command_lost": CommandLost,
    "sandbox_lost": SandboxLost,
}


def answered_error(status: int, body: object) -> _AnsweredError:
    """The error for an answer with `status` >= 400; `body` is the parsed JSON, or None if it is not JSON."""
    fields = body if isinstance(body, dict) else {}
    told = fields.get("code")  # a number is a proxy's
    code = told if told and isinstance(told, str) else f"http_{status}"
    detail = str(fields.get("detail") or "the answer gives no reason")
    family = RequestRejected if status < 500 else ServiceFault
    error = _BY_CODE.get(code, family)(detail, code=code, status=status)
    error.reason = str(fields.get("reason") or "")
    position, estimate_s = fields.get("position"), fields.get("estimate_s")
    error.position = position if isinstance(position, int) else None
    error.estimate_s = float(estimate_s) if isinstance(estimate_s, (int, float)) else None
    return error
