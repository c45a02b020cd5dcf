"""Images with Podman's names."""

from typing import Any

from sandbox_server.sandbox.docker.images import Images

_PREFIXES = ("localhost/", "docker.io/library/", "docker.io/")  # Podman prefixes each name with its origin


class PodmanImages(Images):
    """Like Docker's, but with names as users write them."""

    def named(self, name: str) -> str:
        """See `Images.named`."""
        return next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name)

    def was_pulled(self, image: dict[str, Any]) -> bool:
        """See `Images.was_pulled`. Built and loaded images have a digest too, of the registry `localhost`."""
        return any(not digest.startswith("localhost/") for digest in image.get("RepoDigests") or ())
