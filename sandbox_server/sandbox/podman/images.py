"""Images as Podman names them."""

from typing import Any

from sandbox_server.sandbox.docker.images import Images

_PREFIXES = ("localhost/", "docker.io/library/", "docker.io/")  # Podman tells of each name where it is from


class PodmanImages(Images):
    """Docker's, by the names that users write."""

    def named(self, name: str) -> str:
        """See `Images.named`."""
        return next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name)

    def was_pulled(self, image: dict[str, Any]) -> bool:
        """See `Images.was_pulled`. What was built or loaded has a digest too, of the registry `localhost`."""
        return any(not digest.startswith("localhost/") for digest in image["RepoDigests"] or ())
