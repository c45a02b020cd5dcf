"""The first start of an image whose repository has a history as long as sympy's: how long preparing it takes."""

import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from bench import containers
from bench.results import Figure, Side
from bench.samples import Sample, sample
from bench.subject import WITHOUT_POOL, Bench, own_server
from bench.trainer import Refused, bash

COMMITS, LATER, TAGS = 53_615, 1_000, 68
"""Commits added before HEAD and after it, and tags before HEAD: as in the image of a SWE-bench row of sympy."""
_FOLDERS, _FILES = 40, 40
"""Folders, and files in each: 1,600 files, like sympy's."""
_LABEL = "sandbox.bench.content"
_PREPARED = "sandbox.task_image"
"""Label of the images that our server makes; its value is the task image."""
_BUILD_S = 240.0
_BRANCH = "refs/heads/main"


async def measure(bench: Bench) -> None:
    """The stage `prepare` of the first start of an image; for each start the image is a new one."""
    one = sample()
    took: list[float] = []
    image = await _image(one)
    for number in range(bench.of(3, 1)):
        copy = f"sandbox-bench/history-copy:{containers.RUN}-{number}"
        container = await containers.docker("create", "--label", containers.LABEL, image)
        try:
            await containers.docker("commit", container, copy)  # another digest: no image is prepared from it yet
            took.append(await _first_start(one, copy))
        finally:
            await containers.remove(container)
            await _forget(copy)
    note = f"first start of an image with {COMMITS:,} commits, {TAGS} tags, and {LATER:,} later commits to remove"
    bench.add(Figure("prepare_history_s", "s", Side.median(took), note=note))


async def _first_start(one: Sample, image: str) -> float:
    async with own_server([{**one.row, "image": image}], WITHOUT_POOL) as server:
        sid = await server.client.start(one.instance_id)
        look = (
            "git rev-list --count HEAD; git tag | wc -l; git tag --no-merged HEAD | wc -l; git rev-list --count --all"
        )
        said = await server.client.act(sid, bash(look))
        commits, tags, later, named = map(int, re.findall(r"(?m)^\d+", said))
        if commits < COMMITS or tags < TAGS or later or named != commits:
            raise Refused(f"the prepared image has another history: {said[-300:]}")
        spent = (await server.client.get(f"/v1/sessions/{sid}"))["timings_s"]
        await server.client.end(sid)
        return float(spent["start_prepare"])


async def _forget(image: str) -> None:
    """Remove the image and what our server made of it."""
    made = await containers.docker("images", "-q", "--filter", f"label={_PREPARED}={image}")
    await containers.docker("rmi", "-f", image, *set(made.split()), check=False)


async def _image(one: Sample) -> str:
    """Return the name of the sample's image with the long history, building it if needed."""
    name = f"sandbox-bench/history:{one.name}"
    base = await containers.docker("image", "inspect", "-f", "{{.Id}}", one.image)
    content = hashlib.sha256(base.encode() + Path(__file__).read_bytes()).hexdigest()  # noqa: ASYNC240 - a few KB
    if await containers.docker("images", "-q", "--filter", f"label={_LABEL}={content}", name):
        return name
    print(f"building {name}", file=sys.stderr)
    container = await containers.run(one.image)
    try:
        head = await containers.docker("exec", "-w", "/testbed", container, "git", "rev-parse", "HEAD")
        given = "".join(stream(head, COMMITS, LATER, TAGS)).encode()
        git = ("exec", "-i", "-w", "/testbed", container, "git")
        await containers.docker(*git, "fast-import", "--quiet", "--force", stdin=given, timeout_s=_BUILD_S)
        await containers.docker(*git, "reset", "-q", "--hard", f"{_BRANCH}~{LATER}")
        await containers.docker("commit", "-c", f"LABEL {_LABEL}={content}", container, name, timeout_s=_BUILD_S)
    finally:
        await containers.remove(container)
    return name


def stream(head: str, commits: int, later: int, tags: int) -> Iterator[str]:
    """git's fast-import stream: commits on top of `head`, each with one changed file, tagged at even distances.

    `later` more commits follow, which bear a tag of their own.
    """
    every = commits // tags
    for number in range(1, commits + later + 1):
        folder, file = number % _FOLDERS, number // _FOLDERS % _FILES
        yield f"commit {_BRANCH}\nmark :{number}\n"
        yield f"committer Bench <bench@example.org> {1_600_000_000 + number} +0000\n"
        yield _data(f"commit {number}")
        if number == 1:
            yield f"from {head}\n"
        yield f"M 100644 inline filler/{folder}/{file}.py\n" + _data(f"VALUE = {number}\n")
        if number <= commits and number % every == 0 and number // every <= tags:
            yield f"reset refs/tags/v{number}\nfrom :{number}\n\n"
    yield f"reset refs/tags/later\nfrom :{commits + later}\n\n"


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}\n"
