"""Podman's service: Docker's API, with other words for what failed (Podman 4.3)."""

import docker.errors

from sandbox_server.errors import EngineUnavailable, ImageUnavailable, SandboxLost
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.failure import translate

_ENDED = ("container state improper", "no such container", "no such exec session")
_NOT_MADE = "for attach: "  # it prepares a container when its terminal is attached to, where Docker does at the start
_NO_NAME = ("normalizing image", "invalid reference format", "repository name must be lowercase")


def _translate(error: Exception, url: str) -> Exception:
    """Podman says with 500 what Docker says with 404 and 409; all else is as in Docker's."""
    if isinstance(error, docker.errors.APIError) and not isinstance(error, docker.errors.ImageNotFound):
        text = str(error.explanation or error)
        if _NOT_MADE in text:
            return EngineUnavailable(f"Podman could not make a container's first process: {text}")
        if any(words in text for words in _ENDED):
            return SandboxLost(f"the container is gone or not running: {text}")
        if any(words in text for words in _NO_NAME):
            return ImageUnavailable(f"{text}; correct the name of the image", absent=True)
    return translate(error, url)


class PodmanEngine(Engine):
    """A connection to `podman system service`."""

    network = "podman"
    _translate = staticmethod(_translate)
