"""Limits of boxes: the image a request means, its size, its lifetime, its network. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from sandbox_server.catalogue.image_name import WHY, is_image_name
from sandbox_server.errors import MalformedRequest, UnknownImage
from sandbox_server.records import BoxRecord
from sandbox_server.sandbox.base import Limits
from sandbox_server.sandbox.egress import Egress

SIZE_KEY = "size"
"""The metadata key that names a size."""


@dataclass(frozen=True, slots=True)
class BoxSize:
    """Resources of a named size; None: those of a session's container."""

    cpus: float | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None


@dataclass(frozen=True, slots=True)
class BoxPolicy:
    """The operator's settings SANDBOX_BOX_*. All times in seconds."""

    image_keys: tuple[str, ...]
    """Metadata keys that may name the image; the first present one is used."""
    templates: Mapping[str, str]
    """Template -> image."""
    images: tuple[str, ...]
    """Patterns of images that may run and be pulled; empty: images on the engine and of the catalogue may run."""
    sudo_images: tuple[str, ...]
    """Patterns of images in which sudo works."""
    sizes: Mapping[str, BoxSize]
    user: str
    """User of commands that name none."""
    default_s: float
    """Lifetime of a box whose request names none."""
    max_s: float
    """Longest lifetime of a box, however often it is extended."""
    paused_max_s: float
    """Limit on the total time a box is paused; 0: boxes cannot be paused."""
    network: str
    """bridge or none."""
    networks: Mapping[str, str]
    """Image pattern -> bridge or none; the first match overrides `network`."""
    create_wait_s: float
    """Limit on creating a box, queueing included."""
    login_path: str
    """PATH of login shells. image: the image's own comes first; profile: as set by the profile."""
    timeout_exit: bool
    """Report a command's timeout as exit code 124 instead of the protocol's error."""
    domain: str = ""
    """Parent domain of the host names of box ports; "": no such names."""
    egress_domains: bool = False
    """Requests may allow all names below a domain."""
    limits: Limits = field(default_factory=Limits)
    """Limits of a box without a size."""
    cpus: float = 0.0
    """CPUs of the engine, the most a container can get; 0: unknown."""

    def image(self, named: str, template: str, metadata: Mapping[str, str]) -> str:
        """The image of a request: the one it names, else its metadata's, else its template's.

        Raises:
            UnknownImage: the template has no image, or the image name is invalid.
        """
        asked = named or next((metadata[key] for key in self.image_keys if metadata.get(key)), "")
        if asked:
            if not is_image_name(asked):
                raise UnknownImage(f"image {asked[:100]!r} does not exist: {WHY}")
            return asked
        image = self.mapped(template)
        if image is None and is_image_name(template) and any(fnmatchcase(template, one) for one in self.images):
            return template
        if image is None:
            raise UnknownImage(
                f"template {template!r} does not exist here; build it, or name an image under"
                f" {' or '.join(self.image_keys)} in the metadata, or map the template to one in SANDBOX_BOX_TEMPLATES"
            )
        return image

    def by_template(self, named: str, template: str, metadata: Mapping[str, str]) -> bool:
        """Whether the image can only come from a client's template: neither request nor settings name an image."""
        asked = named or next((metadata[key] for key in self.image_keys if metadata.get(key)), "")
        return not asked and self.mapped(template) is None

    def mapped(self, template: str) -> str | None:
        """The image that the settings name for the template; `name:default` is `name`, as at E2B."""
        return self.templates.get(template) or self.templates.get(template.removesuffix(":default"))

    def is_named(self, image: str) -> bool:
        """Whether the settings name the image, by pattern or as a template's; then it may also be pulled."""
        return image in self.templates.values() or any(fnmatchcase(image, pattern) for pattern in self.images)

    def may_sudo(self, image: str) -> bool:
        """Whether sudo works in boxes of the image, and in builds on it."""
        return any(fnmatchcase(image, pattern) for pattern in self.sudo_images)

    def size(self, metadata: Mapping[str, str], cpus: float | None, memory_mb: int | None) -> Limits:
        """Resource limits of the box; an unknown size counts as none."""
        return self._sized(self.limits, metadata, cpus, memory_mb)

    def size_like(
        self, box: BoxRecord, metadata: Mapping[str, str], cpus: float | None = None, memory_mb: int | None = None
    ) -> Limits:
        """Like `size`, for a copy of another box: the defaults are that box's limits."""
        limits = replace(self.limits, cpus=box.cpus, memory_mb=box.memory_mb, disk_mb=box.disk_mb)
        return self._sized(limits, metadata, cpus, memory_mb)

    def _sized(self, limits: Limits, metadata: Mapping[str, str], cpus: float | None, memory_mb: int | None) -> Limits:
        size = self.sizes.get(metadata.get(SIZE_KEY, ""), BoxSize())
        cpus = cpus or size.cpus or limits.cpus
        return replace(
            limits,
            cpus=min(cpus, self.cpus) if self.cpus else cpus,
            memory_mb=memory_mb or size.memory_mb or limits.memory_mb,
            disk_mb=size.disk_mb or limits.disk_mb,
        )

    def life_s(self, asked_s: float | None) -> float:
        """Lifetime of a box from now on. Raises MalformedRequest: negative or above `max_s`."""
        life_s = self.default_s if asked_s is None else asked_s
        if not 0 <= life_s <= self.max_s:
            raise MalformedRequest(
                f"a timeout of {life_s:g} s is not between 0 and the longest life of a box, {self.max_s:g} s"
                " (SANDBOX_BOX_MAX_S)"
            )
        return life_s

    def network_of(self, image: str, internet: bool | None, asked: Egress | None) -> str:
        """`bridge` or `none`: as the settings allow, or less if the request wants less.

        Raises:
            MalformedRequest: it allows names with `*`, which this server does not.
        """
        if asked is not None and asked.domains and not self.egress_domains:
            raise MalformedRequest(
                "no name with * can be allowed here, because SANDBOX_EGRESS_DNS is not set; name each host"
            )
        if asked is not None and not asked.allow and not asked.rest:
            internet = False
        allowed = next(
            (network for pattern, network in self.networks.items() if fnmatchcase(image, pattern)), self.network
        )
        return "none" if internet is False else allowed
