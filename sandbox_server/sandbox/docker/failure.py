"""Translates failures of the Docker daemon.

Callers that have a container id inspect its state before they read a message. Here only the HTTP status and, if a
status has several meanings, the daemon's exact wording (moby 20.10 to 28) decide; unknown wording is an
EngineUnavailable, never a sandbox's answer.
"""

import re
from collections.abc import Mapping

import docker.errors
import requests

from sandbox_server.errors import (
    EngineUnavailable,
    ImageUnavailable,
    SandboxDiskFull,
    SandboxExhausted,
    SandboxLost,
    SandboxPaused,
    ServiceError,
)

_NOT_RUNNING = re.compile(r"[Cc]ontainer [0-9a-f]{12,64} is not running")  # with 409, and with 500 while it is ending
_PAUSED = re.compile(r"[Cc]ontainer [0-9a-f]{12,64} is paused")  # with 409, in reply to an exec
_DISK = ("no space left on device", "disk quota exceeded")
_NOT_REACHED: Mapping[type[OSError], str] = {
    FileNotFoundError: "there is no such socket; start the engine, or name its socket by SANDBOX_DOCKER_URL",
    PermissionError: "this user may not open its socket; add the user to the group docker, then log in again",
    ConnectionRefusedError: "nothing listens there; start the engine, see `docker info` on the host",
}
_PIDS = ("resource temporarily unavailable", "cannot fork", "eagain")


def stream_refused(status: int, body: bytes) -> docker.errors.APIError:
    """The daemon's refusal of a hijacked request as an SDK error."""
    response = requests.Response()
    response.status_code = status
    text = body.decode("utf-8", "replace")
    return docker.errors.APIError(f"stream refused with {status}", response=response, explanation=text)


def translate(error: Exception, url: str) -> Exception:
    """Return the ServiceError for an SDK error; other exceptions are returned unchanged."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, docker.errors.ImageNotFound):
        return ImageUnavailable(f"{error.explanation or error}; pull or build it, or correct the instance's images")
    if isinstance(error, docker.errors.APIError):
        return _of_status(error)
    if isinstance(error, (docker.errors.DockerException, requests.exceptions.RequestException, OSError)):
        return EngineUnavailable(f"the Docker daemon at {url} does not answer: {_why_not(error)}")
    return error


def _why_not(error: Exception) -> str:
    """Why the daemon did not answer, and what to do. The SDK hides the system's error in causes and arguments."""
    errors: list[BaseException] = [error]
    for cause in errors:
        for kind, text in _NOT_REACHED.items():
            if isinstance(cause, kind):
                return text
        inner = (*cause.args, cause.__cause__, cause.__context__)
        errors += [one for one in inner if isinstance(one, BaseException) and all(one is not seen for seen in errors)]
    return f"{error}; see `docker info` on the host"


def _of_status(error: docker.errors.APIError) -> ServiceError:
    text = str(error.explanation or error)
    lower = text.lower()
    status = error.response.status_code if error.response is not None else 500
    if any(phrase in lower for phrase in _DISK):
        return SandboxDiskFull(f"the disk is full: {text}")
    if any(phrase in lower for phrase in _PIDS):
        return SandboxExhausted(f"the container can take no further process: {text}")
    if status == 404 and ("no such image" in lower or "manifest unknown" in lower):
        return ImageUnavailable(text)
    if status == 400 and "invalid reference format" in lower:
        return ImageUnavailable(f"{text}; correct the image name", absent=True)
    if _NOT_RUNNING.search(text):
        return SandboxLost(f"the container is not running: {text}")
    if _PAUSED.search(text):
        return SandboxPaused(f"the container is paused: {text}")
    if status in (404, 409) and ("container" in lower or "exec" in lower):
        return SandboxLost(f"the container is gone or not running: {text}")
    return EngineUnavailable(f"the Docker daemon answered {status}: {text}")
