"""Task images on one engine: finds them, pulls each only once at a time, and commits containers to images.

While `watch` runs, lookups are cached until the engine reports a change to its images (a build, pull, tag or removal by
anybody). Otherwise every lookup asks the engine.
"""

import asyncio
import io
import json
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote

import requests
from docker import APIClient

from sandbox_server import clock
from sandbox_server.errors import ImageUnavailable, ServiceError
from sandbox_server.sandbox.base import Build, ImageInfo, StoredImage
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.image_names import tagged

_SAID_LINES, _SAID_CHARACTERS = 20, 1500  # of a build that failed
_IMAGE_EVENTS = "/events?filters=" + quote(json.dumps({"type": ["image"]}))


@dataclass(slots=True)
class _Known:
    """The engine's answers since the last change to its images."""

    found: dict[str, ImageInfo | None] = field(default_factory=dict)
    """By name; None: not on the engine."""
    all: list[ImageInfo] | None = None
    """None: not asked for yet."""


class Images:
    """Looks up images and pulls missing ones; a failed pull is not cached."""

    def __init__(self, engine: Engine, *, pull: bool, pull_timeout_s: float) -> None:
        self._engine = engine
        self._pull = pull
        self._pull_timeout_s = pull_timeout_s
        self._pulling: dict[str, asyncio.Task[None]] = {}
        self._uses: dict[str, float] = {}
        self._known: _Known | None = None
        """None: nobody watches, so nothing is cached."""

    async def watch(self) -> None:
        """Follow the engine's events until it ends the stream or does not answer."""
        try:
            with suppress(ServiceError, OSError):
                await self._listen()
        finally:
            self._known = None

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        sock, _ = await self._engine.hijack(_IMAGE_EVENTS, method="GET")
        with sock:
            self._known = _Known()
            while await loop.sock_recv(sock, 1 << 16):
                self.forget()

    def forget(self) -> None:
        """Clear the cache."""
        if self._known is not None:
            self._known = _Known()  # a new one, so that a lookup under way writes its answer to the old one

    async def resolve(self, candidates: Sequence[str]) -> ImageInfo:
        """See `sandbox.image.Images.resolve`."""
        for name in candidates:
            if found := await self.find(name):
                self.used(name)
                return found
        reasons: list[str] = []
        absent = True
        if self._pull:
            for name in candidates:
                try:
                    await self._pull_once(name)
                except ServiceError as e:
                    reasons.append(f"{name}: {e.detail}")
                    absent &= isinstance(e, ImageUnavailable)
                    continue
                if found := await self.find(name):
                    self.used(name)
                    return found
                absent = False
        tried = "; ".join(reasons) or "pulling is off (SANDBOX_PULL=never)"
        raise ImageUnavailable(
            f"none of the images {', '.join(candidates) or '(none named)'} is on this engine; {tried}."
            " Build or load it on the host, or correct the instance's images",
            absent=absent,
        )

    async def commit(self, container_id: str, name: str, labels: Mapping[str, str]) -> ImageInfo:
        """See `sandbox.image.Images.commit`."""
        repository, _, tag = name.rpartition(":")
        changes = [f"LABEL {key}={json.dumps(value)}" for key, value in labels.items()]
        made: dict[str, Any] = await self._engine.call(
            lambda api: api.commit(container_id, repository=repository, tag=tag, changes=changes),
            timeout_s=self._pull_timeout_s,
        )
        return ImageInfo(name, made["Id"], labels)

    async def build(self, name: str, context: bytes, build: Build) -> ImageInfo:
        """See `sandbox.image.Images.build`."""
        try:
            await self._engine.call(
                partial(_build, name=name, context=context, how=build), timeout_s=build.timeout_s + 60
            )
        finally:
            self.forget()
        if found := await self.find(name):
            return found
        raise ImageUnavailable(f"the engine built {name} and does not have it")

    async def find(self, name: str) -> ImageInfo | None:
        """See `sandbox.image.Images.find`."""
        known = self._known
        if known is not None and name in known.found:
            return known.found[name]
        try:
            found: dict[str, Any] = await self._engine.call(
                lambda api: api.inspect_image(name)  # type: ignore[no-untyped-call]  # the SDK's stubs miss it
            )
        except ImageUnavailable:
            info = None
        else:
            config = found["Config"]
            env = dict(entry.partition("=")[::2] for entry in config.get("Env") or ())
            names = (*(found.get("RepoTags") or ()), *(found.get("RepoDigests") or ()))
            info = ImageInfo(name, found["Id"], config.get("Labels") or {}, env, names)
        if known is not None:
            known.found[name] = info
        return info

    async def all(self) -> Sequence[ImageInfo]:
        """See `sandbox.image.Images.all`."""
        known = self._known
        if known is not None and known.all is not None:
            return known.all
        found: list[dict[str, Any]] = await self._engine.call(lambda api: api.images())
        images = [
            ImageInfo(self.named(name), image["Id"], image.get("Labels") or {})
            for image in found
            for name in image.get("RepoTags") or ()
            if name != "<none>:<none>"
        ]
        if known is not None:
            known.all = images
        return images

    async def stored(self) -> list[StoredImage]:
        """See `sandbox.image.Images.stored`."""
        images: list[dict[str, Any]] = await self._engine.call(lambda api: api.images(all=True))
        containers: list[dict[str, Any]] = await self._engine.call(lambda api: api.containers(all=True))
        needed = {c["ImageID"] for c in containers} | {image.get("ParentId") for image in images}
        return [
            StoredImage(
                names=tuple(map(self.named, image["RepoTags"])),
                digest=image["Id"],
                size_bytes=image["Size"],
                created_at=image["Created"],
                pulled=self.was_pulled(image),
                used=image["Id"] in needed,
            )
            for image in images
            if image.get("RepoTags") not in (None, [], ["<none>:<none>"])
        ]

    async def remove(self, name: str) -> bool:
        """See `sandbox.image.Images.remove`."""
        try:
            await self._engine.call(partial(APIClient.remove_image, image=name))
        except ImageUnavailable:
            pass  # removed by somebody else
        except ServiceError:
            return False
        finally:
            self.forget()
        return True

    def named(self, name: str) -> str:
        """An image's name as users write it, from the engine's form."""
        return name

    def was_pulled(self, image: dict[str, Any]) -> bool:
        """Whether a registry has it, judged by the engine's listing."""
        return bool(image.get("RepoDigests"))

    def used(self, name: str) -> None:
        """Note that the image is used now."""
        self._uses[tagged(name)] = clock.now()

    @property
    def pulling(self) -> int:
        """See `sandbox.image.Images.pulling`."""
        return len(self._pulling)

    def take_uses(self) -> dict[str, float]:
        """See `sandbox.image.Images.take_uses`."""
        taken, self._uses = self._uses, {}
        return taken

    async def _pull_once(self, name: str) -> None:
        task = self._pulling.get(name)
        if task is None:
            task = asyncio.create_task(self._engine.call(lambda api: api.pull(name), timeout_s=self._pull_timeout_s))
            self._pulling[name] = task
            task.add_done_callback(lambda _: self._pulling.pop(name, None))
        # shielded: one caller's cancellation must not end the pull for the others
        await asyncio.shield(task)


def _build(api: APIClient, *, name: str, context: bytes, how: Build) -> None:
    """Build and read the log to its end. Closing the response, also after an error, ends the build on the engine."""
    said = deque[str](maxlen=_SAID_LINES)
    ends = time.monotonic() + how.timeout_s
    memory = how.memory_mb << 20
    answer = api.build(
        fileobj=io.BytesIO(context),
        custom_context=True,
        encoding="gzip",
        dockerfile=how.dockerfile,
        tag=name,
        rm=True,
        forcerm=True,
        decode=True,
        timeout=max(1, round(how.timeout_s)),  # between two lines of the log
        labels=dict(how.labels),
        container_limits={"memory": memory, "memswap": memory},
    )
    try:
        with closing(answer):
            for event in answer:
                said.append(str(event.get("error") or event.get("stream") or event.get("status") or "").strip())
                if "error" in event:
                    raise ImageUnavailable(f"its Dockerfile cannot be built: {_end(said)}")
                if time.monotonic() > ends:
                    raise ImageUnavailable(f"its build took longer than {how.timeout_s:g} s: {_end(said)}")
    except requests.Timeout:  # a step without output; the engine itself may be well
        raise ImageUnavailable(f"its build said nothing for {how.timeout_s:g} s: {_end(said)}") from None


def _end(said: Iterable[str]) -> str:
    return "\n".join(line for line in said if line)[-_SAID_CHARACTERS:]
