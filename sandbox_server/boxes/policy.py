"""What a box may be: which image a request means, how large it is, how long it lives, what it reaches. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from sandbox_server.catalogue.image_name import WHY, is_image_name
from sandbox_server.errors import MalformedRequest, UnknownImage
from sandbox_server.sandbox.base import Limits
from sandbox_server.sandbox.egress import Egress

# it becomes a part of a path of the engine's API
SIZE_KEY = "size"
"""The metadata key that names a size."""


@dataclass(frozen=True, slots=True)
class BoxSize:
    """What a named size allows; None: as a session's container."""

    cpus: float | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None


@dataclass(frozen=True, slots=True)
class BoxPolicy:
    """The operator's word, from the settings SANDBOX_BOX_*. All times in seconds."""

    image_keys: tuple[str, ...]
    """Metadata keys that may hold the image, the first that is there counts."""
    templates: Mapping[str, str]
    """Template -> image."""
    images: tuple[str, ...]
    """Patterns of images that may be run, and pulled; none: any that is on an engine, and the catalogue's."""
    sizes: Mapping[str, BoxSize]
    user: str
    """Whose the commands are that name no user."""
    default_s: float
    """Life of a box whose request says nothing."""
    max_s: float
    """Longest life of any box, however often it is prolonged."""
    paused_max_s: float
    """How long a box may be paused, all its pauses together; 0: it cannot be."""
    network: str
    """bridge or none."""
    networks: Mapping[str, str]
    """Pattern of image -> bridge or none; the first that matches counts, before `network`."""
    create_wait_s: float
    """Bound on a create, queueing included."""
    login_path: str
    """image: a login shell finds the image's PATH again after its profile was read; profile: what the profile says."""
    timeout_exit: bool
    """A command that ran out of time ends with exit code 124 in place of the protocol's own error."""
    domain: str = ""
    """Under which ports of boxes have host names; "": they have none."""
    limits: Limits = field(default_factory=Limits)
    """Of a box without a size."""
    cpus: float = 0.0
    """What the engine has; a container cannot be given more. 0: not known."""

    def image(self, named: str, template: str, metadata: Mapping[str, str]) -> str:
        """What a request runs: the image that it names, else that in its metadata, else its template's.

        Raises:
            UnknownImage: the template has none, or it is no name of an image.
        """
        asked = named or next((metadata[key] for key in self.image_keys if metadata.get(key)), "")
        if asked:
            if not is_image_name(asked):
                raise UnknownImage(f"image {asked[:100]!r} does not exist: {WHY}")
            return asked
        image = self.templates.get(template)
        if image is None:
            raise UnknownImage(
                f"template {template!r} does not exist here; name an image under {' or '.join(self.image_keys)} in the"
                " metadata, or map the template to one in SANDBOX_BOX_TEMPLATES"
            )
        return image

    def is_named(self, image: str) -> bool:
        """The operator wrote the image down, by pattern or as a template's, so it may also be pulled."""
        return image in self.templates.values() or any(fnmatchcase(image, pattern) for pattern in self.images)

    def size(self, metadata: Mapping[str, str], cpus: float | None, memory_mb: int | None) -> Limits:
        """What the box may use; unknown sizes are no size."""
        size = self.sizes.get(metadata.get(SIZE_KEY, ""), BoxSize())
        cpus = cpus or size.cpus or self.limits.cpus
        return replace(
            self.limits,
            cpus=min(cpus, self.cpus) if self.cpus else cpus,
            memory_mb=memory_mb or size.memory_mb or self.limits.memory_mb,
            disk_mb=size.disk_mb or self.limits.disk_mb,
        )

    def life_s(self, asked_s: float | None) -> float:
        """How long a box lives from now on. Raises MalformedRequest: longer than any may."""
        life_s = self.default_s if asked_s is None else asked_s
        if not 0 <= life_s <= self.max_s:
            raise MalformedRequest(
                f"a timeout of {life_s:g} s is not between 0 and the longest life of a box, {self.max_s:g} s"
                " (SANDBOX_BOX_MAX_S)"
            )
        return life_s

    def network_of(self, image: str, internet: bool | None, asked: Egress | None) -> str:
        """`bridge` or `none`: the operator's word, and less where the request wants less."""
        if asked is not None and not asked.allow and not asked.rest:
            internet = False
        allowed = next(
            (network for pattern, network in self.networks.items() if fnmatchcase(image, pattern)), self.network
        )
        return "none" if internet is False else allowed
