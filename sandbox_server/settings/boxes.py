"""Boxes: what clients may run, for how long, and what it may reach."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import NoDecode


class BoxSize(BaseModel):
    """Resources of a box size; null: the same as a session."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cpus: Annotated[float, Field(gt=0)] | None = None
    memory_mb: Annotated[int, Field(gt=0)] | None = None
    disk_mb: Annotated[int, Field(gt=0)] | None = None


class BoxSettings(BaseModel):
    """Boxes: what clients may run, for how long, and what it may reach."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    # Boxes
    box_image_keys: Annotated[tuple[str, ...], NoDecode] = ("image", "docker_image", "container_image")
    """Comma-separated metadata keys that name a box's image; the first one present in a request is used."""
    box_templates: dict[str, str] = {}
    """JSON object, template -> image, for requests whose metadata names no image: {"base": "python:3.12"}."""
    box_images: Annotated[tuple[str, ...], NoDecode] = ()
    """Comma-separated patterns (`*`, `?`) of images that boxes may run; missing ones are pulled. Unset: any image on
    the engine, and the images of the catalogue and of SANDBOX_BOX_TEMPLATES; only the latter two are pulled."""
    box_raw_images: Annotated[tuple[str, ...], NoDecode] = ()
    """Comma-separated patterns of task images that boxes get unmodified, including history after HEAD and hidden files;
    `*`: all. Unset: boxes see the same part of a task image as its sessions. See docs/boxes.md."""
    box_sudo_images: Annotated[tuple[str, ...], NoDecode] = ()
    """Comma-separated patterns of images in whose boxes and template builds sudo, su and other set-user-ID programs
    work. They make a user the container's root, which has no more rights than usual (SECURITY.md). Unset: no image."""
    box_sizes: dict[str, BoxSize] = {
        "sm": BoxSize(cpus=1, memory_mb=2048),
        "md": BoxSize(cpus=2, memory_mb=4096),
        "lg": BoxSize(cpus=4, memory_mb=8192),
    }
    """JSON object: resources for each value of the metadata key `size`. A box without a size gets a session's
    resources; no box gets more CPUs than the engine has."""
    box_user: str = "root"
    """User of a box's commands and files if a request names none; E2B's own templates use `user`. In an image
    without this user, requests must name one."""
    box_default_s: float = 300.0
    """Lifetime of a box if its request names none."""
    box_max_s: Annotated[float, Field(gt=0)] = 86400.0
    """Longest lifetime of a box, however often it is extended."""
    box_idle_s: Annotated[float, Field(ge=0)] = 0.0
    """A box that no request has used for this long is ended before its timeout, because its client may have died. Open
    streams count as use; commands that no client follows do not. 0: boxes never end by being idle, as at E2B."""
    box_paused_max_s: Annotated[float, Field(ge=0)] = 14400.0
    """Longest total time that a box may be paused; then it is removed. A paused box keeps its memory and its slot,
    unless it was paused with its files only. 0: boxes cannot be paused."""
    snapshots: Annotated[int, Field(ge=0)] = 100
    """Snapshots of boxes that one API key may have; 0: none are taken."""
    snapshots_mb: Annotated[float, Field(gt=0)] = 1024.0
    """Limit on the total compressed size of one API key's snapshots. They are stored with the node's checkpoints
    (SANDBOX_CHECKPOINTS_MB), or in the object store of SANDBOX_CHECKPOINTS_URL, until they are deleted."""
    template_builds: Annotated[int, Field(ge=0)] = 2
    """Templates that this node builds at a time for clients of E2B's protocol; 0: it builds none."""
    template_queue: Annotated[int, Field(ge=0)] = 50
    """Builds of templates that may wait; further ones are refused with 503."""
    template_build_s: Annotated[float, Field(gt=0)] = 1800.0
    """Limit on the steps of one build."""
    template_ready_s: Annotated[float, Field(gt=0)] = 40.0
    """Limit on a template's start command becoming ready, in each box's create and once in the build."""
    template_files_mb: Annotated[float, Field(gt=0)] = 64.0
    """Limit on one uploaded archive of files to copy, and on its contents. They are stored in SQL."""
    template_files_total_mb: Annotated[float, Field(gt=0)] = 2048.0
    """Limit on all archives of the templates of one API key."""
    box_network: Literal["bridge", "none"] = "bridge"
    """Network of boxes; a request may ask for less, never for more."""
    box_networks: dict[str, Literal["bridge", "none"]] = {}
    """JSON object, image pattern -> bridge or none; the first match overrides SANDBOX_BOX_NETWORK."""
    box_egress: Annotated[tuple[str, ...], NoDecode] | None = None
    """Comma-separated allow list for boxes, and for sessions whose instance has a network: `host:port`, `host`,
    `*.domain`, `10.0.0.0/8`, `10.0.0.0/8:443`. Names are resolved when a container is created. A request may restrict
    this further. Empty: nothing is reachable; unset: everything that the network reaches."""
    egress_dns: str = ""
    """Name server for rules with `*.domain`, as `address` or `address:port`; boxes must be able to reach it. Unset:
    such rules are refused. docs/boxes.md."""
    egress_image: str = "sandbox-egress"
    """Image with nft and dnsmasq, for these rules; `sandbox-server images build egress` builds it. docs/boxes.md."""
    box_create_wait_s: float = 50.0
    """Limit on creating a box, queueing and pulling included; E2B's clients give up at 60 s. A pull continues after
    it."""
    box_login_path: Literal["image", "profile"] = "image"
    """PATH of a login shell (`bash -l`), which E2B's clients always use: the image's own, or the one set by
    /etc/profile."""
    box_login_cache: bool = True
    """From its third identical start on, a login shell skips its profile if the profile only tests files and sets
    variables (docs/boxes.md). Off: the profile runs each time, which takes some 35 ms."""
    box_domain: Annotated[str, Field(pattern=r"^([A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*(:[0-9]+)?)?$")] = ""
    """Domain for box ports: requests to the host `<port>-<sandbox id>.` plus this domain go to that port of the box.
    E2B's clients are told the domain. Needs DNS and TLS in front (docs/boxes.md). Unset: no such names."""
    box_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """Comma-separated origins (https://host:port; `*`: any) of web pages that may use the server from a browser, e.g.
    with E2B's JavaScript SDK. Such pages need an API key like every client. Without SANDBOX_API_KEYS, any page of these
    origins that is open in a browser of the network could start boxes. Unset: browsers keep pages from reading answers.
    """
    box_port_connections: Annotated[int, Field(gt=0)] = 64
    """Concurrent requests to ports of one box; more get 503. Each uses some processes of the box."""
    box_port_open_s: Annotated[float, Field(gt=0)] = 30.0
    """Timeout of connecting to a port of a box."""
    box_port_idle_s: Annotated[float, Field(gt=0)] = 300.0
    """A request to a port of a box is cut off after this long without traffic; 504 if it has no answer yet."""
    box_output_mb: Annotated[float, Field(gt=0)] = 16.0
    """Kept output of each stream of a /v1/boxes command: half from its head, half from its tail."""
    box_output_total_mb: Annotated[float, Field(gt=0)] = 256.0
    """Limit on the kept output of all /v1/boxes commands that have ended but were not read yet; the oldest is dropped
    first."""
    blobs_mb: Annotated[float, Field(gt=0)] = 4096.0
    """Limit on uploaded blobs in SANDBOX_DATA_DIR; the least recently used are removed first."""
    box_timeout_exit: bool = False
    """Report a command's timeout as exit code 124, as `timeout` does; off: as the protocol's error."""

    journal_file_mb: Annotated[float, Field(gt=0, le=64)] = 4.0
    """Largest file that /v1/boxes/{sid}/files writes into a session: its journal stores the bytes, to write them again
    if the session is restored. Copy larger files from /v1/blobs."""
