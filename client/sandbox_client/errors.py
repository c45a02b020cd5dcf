"""Every error the client raises on purpose. None of them ever holds a key.

SandboxError
├── SettingsError          a base URL or an environment variable is unusable
├── Unreachable            no host answered within the retries
├── CallTimedOut           the call's own bound passed
├── BadAnswer              the answer is not what the protocol says; is there a proxy between?
├── RequestRejected        4xx: sending it again changes nothing
│   ├── Unauthorized
│   ├── UnknownInstance
│   ├── UnknownSession     for a box too: it is not there, or has ended
│   ├── UnknownImage       no box can be of this image
│   ├── UnknownFile        the box has no such file
│   ├── UnknownBlob        the box's host does not hold this content
│   ├── CommandLost        a command was begun and its end is not known: the service was restarted
│   └── Ungradable         the instance has no grader
├── ServiceFault           5xx after the retries
│   ├── NoCapacity         full past the service's bound
│   └── SandboxLost        the container is gone, with all in it
├── CommandFailed          a command that had to succeed did not; a RuntimeError too
└── CommandTimedOut        a command ran past its own limit, and was killed with all that it began

Branch on the type or on `code` (the service's word), never on the message.
"""

from __future__ import annotations

from collections.abc import Mapping


class SandboxError(Exception):
    """Base of all; `detail` says in one sentence what happened."""

    code = "client_error"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class SettingsError(SandboxError):
    """A base URL or an environment variable is missing or unusable."""

    code = "settings"


class Unreachable(SandboxError):
    """No host took the request, or the connection broke, until the retries were used up."""

    code = "unreachable"


class CallTimedOut(SandboxError):
    """No answer within the call's bound; an action may still be running on the service."""

    code = "timed_out"


class BadAnswer(SandboxError):
    """Not a JSON object, or one without the fields that the protocol promises."""

    code = "bad_answer"


class _AnsweredError(SandboxError):
    reason = ""
    """Of a 503: what the start lacked (slots, queue, daemon, disk, image, draining), "" where none is given."""
    position: int | None = None
    """Of a 503: its place in the line that it waited in, 1 the next."""
    estimate_s: float | None = None
    """Of a 503: seconds until its turn, as the service saw it."""

    def __init__(self, detail: str, *, code: str, status: int) -> None:
        super().__init__(f"HTTP {status} {code}: {detail}")
        self.detail = detail
        self.code = code
        self.status = status


class RequestRejected(_AnsweredError):
    """The service refuses this request; sending it again changes nothing."""


class Unauthorized(RequestRejected):
    """No API key, or one that the service does not know."""


class UnknownInstance(RequestRejected):
    """The catalogue holds no such instance."""


class UnknownSession(RequestRejected):
    """No session has this sid."""


class UnknownImage(RequestRejected):
    """The service has no such image, or boxes may not run it."""


class UnknownFile(RequestRejected):
    """The box has no file of this path."""


class UnknownBlob(RequestRejected):
    """The box's host does not hold this content."""


class CommandLost(RequestRejected):
    """The command was begun once; what became of it is not known, and it is not run again."""


class Ungradable(RequestRejected):
    """The instance has no grader, so no reward could ever be given."""


class ServiceFault(_AnsweredError):
    """A fault of the service that outlasted the retries; says nothing about the policy."""


class NoCapacity(ServiceFault):
    """No room within the service's bound; nothing was started. `reason`, `position` and `estimate_s` say why."""


class SandboxLost(ServiceFault):
    """The container is gone, with all that was in it."""


class CommandFailed(SandboxError, RuntimeError):
    """A command that had to succeed ended with another exit code than 0."""

    code = "command_failed"

    def __init__(self, detail: str, *, exit_code: int) -> None:
        super().__init__(detail)
        self.exit_code = exit_code


class CommandTimedOut(SandboxError):
    """A command ran past its own limit; it was killed with all that it began. `stdout` and `stderr` until then."""

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
    """The error of an answer with `status` >= 400; `body` is the parsed JSON, or None where it is none."""
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
