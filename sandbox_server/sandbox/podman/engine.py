"""Podman's service: Docker's API with other error messages (Podman 4.3)."""

import os
from pathlib import Path

import docker.errors

from sandbox_server.errors import EngineUnavailable, ImageUnavailable, SandboxLost
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.failure import translate

_ENDED = ("container state improper", "no such container", "no such exec session")
_NOT_MADE = "for attach: "  # it prepares a container when a terminal is attached, Docker when it starts
_NO_NAME = ("normalizing image", "invalid reference format", "repository name must be lowercase")


def _translate(error: Exception, url: str) -> Exception:
    """Podman answers 500 where Docker answers 404 and 409; everything else is as with Docker."""
    if isinstance(error, docker.errors.APIError) and not isinstance(error, docker.errors.ImageNotFound):
        text = str(error.explanation or error)
        if _NOT_MADE in text:
            return EngineUnavailable(f"Podman could not create a container's first process: {text}")
        if any(words in text for words in _ENDED):
            return SandboxLost(f"the container is gone or not running: {text}")
        if any(words in text for words in _NO_NAME):
            return ImageUnavailable(f"{text}; correct the image name", absent=True)
    return translate(error, url)


def podman_url() -> str:
    """The URL of Podman's socket at one of its standard places: the user's own first, then the system's.

    Raises:
        EngineUnavailable: no socket there.
    """
    folders = [folder for folder in (os.environ.get("XDG_RUNTIME_DIR"), "/run") if folder]
    places = [Path(folder, "podman/podman.sock") for folder in folders]
    for place in places:
        if place.is_socket():
            return f"unix://{place}"
    raise EngineUnavailable(
        f"SANDBOX_ENGINE is podman, and there is no socket at {' or '.join(map(str, places))}: start Podman's service"
        f" (`systemctl start podman.socket`, or `podman system service --time 0 unix://{places[-1]}`), or let"
        " SANDBOX_DOCKER_URL name its socket"
    )


class PodmanEngine(Engine):
    """A connection to `podman system service`."""

    product = "Podman"
    network = "podman"
    _translate = staticmethod(_translate)
