"""The images that boxes may run."""

from collections.abc import Awaitable, Callable

from sandbox_server.boxes.policy import BoxPolicy
from sandbox_server.errors import UnknownImage
from sandbox_server.images.box_images import BoxImages
from sandbox_server.sandbox.base import ImageInfo, Runtime


class AllowedImages:
    """Checks images against the policy, the engine and the catalogue."""

    def __init__(
        self, runtime: Runtime, policy: BoxPolicy, images: BoxImages, may_pull: Callable[[str], Awaitable[bool]]
    ) -> None:
        """`may_pull(image)`: whether the catalogue names the image."""
        self._runtime = runtime
        self._policy = policy
        self._may_pull = may_pull
        self.images = images

    async def permit(self, image: str) -> None:
        """Check that boxes may run the image. Raises UnknownImage, EngineUnavailable, CatalogueUnavailable."""
        if self._policy.is_named(image):
            return
        if self._policy.images:
            raise UnknownImage(f"image {image!r} does not exist for boxes: no pattern of SANDBOX_BOX_IMAGES fits it")
        if await self._runtime.images.find(image) is None and not await self._may_pull(image):
            raise UnknownImage(
                f"image {image!r} does not exist on this engine, nor is it an image of the catalogue; load it there,"
                " or name it in SANDBOX_BOX_IMAGES to have it pulled"
            )

    async def base(self, image: str) -> ImageInfo:
        """The image that a box of `image` starts from, as the base of a build. Raises as `permit`, `BoxImages.of`."""
        await self.permit(image)
        return await self.images.of(image, {})
