"""Imports a file of tasks: reads its rows, detects their families, converts them and checks the result."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from sandbox_server.catalogue import importers
from sandbox_server.catalogue.conversion import Swebench41
from sandbox_server.catalogue.harbor.folders import task_rows
from sandbox_server.catalogue.image_name import WHY, is_image_name
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.nemo_gym import unwrapped_row
from sandbox_server.catalogue.read import read_rows
from sandbox_server.catalogue.rows import Importer, OldRowConverter, SourceRow
from sandbox_server.errors import MalformedRequest, RowRejected
from sandbox_server.plugins import discover

_IMPORTERS = {name: cast(Importer, importer) for name, importer in discover(importers, "IMPORTER").items()}


def read_instances(
    path: Path,
    *,
    swebench4_dir: Path | None = None,
    family: str = "",
    on_progress: Callable[[int, int], None] | None = None,
) -> list[TaskInstance]:
    """The instances of all rows of `path`, in order. Blocks: seconds for thousands of rows.

    `swebench4_dir`: folder with swebench 4.1.0 for old SWE-bench rows; None: the environment's own. `family`: the
    family of all rows, whatever they look like; "": detect it for each row. `on_progress(done, total)` is called after
    each row is converted, which takes longest.

    Raises:
        RowRejected: a row is unusable, of no known family, or repeats an id; nothing of the file is returned.
        MalformedRequest: the file cannot be read, or there is no such family.
        GraderBroken: there are old rows, and swebench 4.1.0 is missing or failed.

    """
    if family and family not in _IMPORTERS:
        raise MalformedRequest(f"no family {family!r}; there are {', '.join(_IMPORTERS)}")
    families: defaultdict[str, list[SourceRow]] = defaultdict(list)
    for row in map(unwrapped_row, read_rows(path)):
        families[family or _family(row)].append(row)
    converter, total = Swebench41(swebench4_dir), sum(map(len, families.values()))
    found: dict[int, TaskInstance] = {}
    for family, rows in families.items():
        instances = _converted(_IMPORTERS[family], rows, converter)
        for row, instance in zip(rows, instances, strict=True):
            found[row.line] = instance
            if on_progress is not None:
                on_progress(len(found), total)
    seen: dict[str, int] = {}
    for line, instance in sorted(found.items()):
        _check(line, instance, seen)
    return [found[line] for line in sorted(found)]


def read_tasks(folder: Path, carry: Sequence[str] = ()) -> tuple[list[TaskInstance], list[str]]:
    """The instances of Harbor's tasks in `folder`, and for each task that is refused the reason.

    `carry`: see `task_rows`.

    Raises:
        MalformedRequest: there is no task.
    """
    found: list[TaskInstance] = []
    refused: list[str] = []
    seen: dict[str, int] = {}
    for row in task_rows(folder, carry):
        try:
            if isinstance(row, RowRejected):
                raise row
            (instance,) = _converted(_IMPORTERS["harbor"], [row], Swebench41(None))
            _check(row.line, instance, seen)
        except RowRejected as error:
            if error.detail not in refused:  # each step of a task is refused for what any of them asks for
                refused.append(error.detail)
        else:
            found.append(instance)
    return found, refused


def _family(row: SourceRow) -> str:
    for general in (False, True):
        matching = [name for name, it in _IMPORTERS.items() if it.general is general and it.matches(row.fields)]
        if len(matching) > 1:
            raise row.rejected(f"looks like several families at once: {', '.join(matching)}; name one by --family")
        if matching:
            return matching[0]
    keys = ", ".join(sorted(row.fields)[:12]) or "none"
    known = ", ".join(_IMPORTERS)
    raise row.rejected(f"its keys fit no known family ({known}): {keys}; if it belongs to one, name that with --family")


def _converted(importer: Importer, rows: list[SourceRow], converter: OldRowConverter) -> Iterator[TaskInstance]:
    instances = importer.convert(rows, converter)
    for row in rows:
        try:
            yield next(instances)
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(str(part) for part in fault["loc"])
            raise row.rejected(f"{where}: {fault['msg']}") from None


def _check(line: int, instance: TaskInstance, seen: dict[str, int]) -> None:
    if not instance.instance_id.isprintable():
        raise RowRejected(f"instance_id {instance.instance_id!r} holds control characters", line=line)
    for name in ("dataset", "repo", "version"):
        if "\0" in getattr(instance, name):
            raise RowRejected(f"{name} holds a NUL character", line=line)
    for image in instance.sandbox.images:
        if not is_image_name(image):
            raise RowRejected(f"sandbox.images names {image[:100]!r}: {WHY}", line=line)
    try:
        instance.model_dump_json()
    except PydanticSerializationError:
        raise RowRejected("a text holds half of a surrogate pair, which no database stores", line=line) from None
    first = seen.setdefault(instance.instance_id, line)
    if first != line:
        raise RowRejected(f"{instance.instance_id!r} is on line {first} already", line=line)
