"""Finds the image that a box's files belong to; pulls or builds it if it is missing."""

from sandbox_server.boxes.templates import TemplateBuilds, UnknownTemplate
from sandbox_server.errors import UnknownImage
from sandbox_server.images.box_images import BoxImages
from sandbox_server.images.preparing import REPOSITORY
from sandbox_server.records import BoxRecord
from sandbox_server.sandbox.base import ImageInfo, Runtime

_TEMPLATES = f"{REPOSITORY}:template-"


def of_template(box: BoxRecord) -> bool:
    """Whether the box runs an image that a client built."""
    return box.image.startswith(_TEMPLATES)


class BaseImages:
    """The images of boxes on this engine."""

    def __init__(self, runtime: Runtime, images: BoxImages, templates: TemplateBuilds) -> None:
        self._runtime = runtime
        self._images = images
        self._templates = templates

    async def of(self, box: BoxRecord, image_id: str) -> ImageInfo:
        """The image with this id, which `box` was created from; if it is missing, the same image made again.

        Raises:
            UnknownImage: it is gone, and its name now means another image. ImageUnavailable, EngineUnavailable,
            CatalogueUnavailable.
        """
        for name in (box.base, image_id):
            found = await self._runtime.images.find(name) if name else None
            if found is not None and found.digest == image_id:
                return found
        made = await self._again(box)
        if made.digest == image_id or (made.name == box.base and made.name.startswith(f"{REPOSITORY}:")):
            return made  # our images are named by a hash of their inputs; their ids differ between engines
        raise UnknownImage(
            f"image {image_id} does not exist here any more: {box.image!r} names another one now; load it again"
        )

    async def _again(self, box: BoxRecord) -> ImageInfo:
        if not of_template(box):
            return await self._images.of(box.image, box.metadata)
        try:
            template = await self._templates.find(box.owner, box.built)
            builds = await self._templates.store.builds(template.template_id)
        except UnknownTemplate:
            builds = []
        build = next((state.build for state in builds if state.build.result.image == box.image), None)
        if build is None:
            raise UnknownImage(f"image {box.image!r} does not exist here any more: its template was deleted")
        return await self._templates.image(build)
