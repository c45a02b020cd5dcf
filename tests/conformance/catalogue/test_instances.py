"""The repository of instances, on each database."""

import asyncio
import json
import resource
from pathlib import Path

import pytest

from sandbox_server.catalogue import instance as instance_module
from sandbox_server.catalogue import instances as instances_module
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.importing import read_instances
from sandbox_server.catalogue.instance import SandboxSpec, ScriptGrader, SwebenchGrader, TaskInstance
from sandbox_server.catalogue.instances import ImportReport, Instances, Verification
from sandbox_server.errors import RowRejected, UnknownInstance

REAL_ROWS = Path(__file__).parents[4] / "shared" / "swebench_rows.jsonl"


def task(instance_id: str, **fields: object) -> TaskInstance:
    known: dict[str, object] = {
        "repo": "o/r",
        "sandbox": SandboxSpec(images=("i:latest",)),
        "grader": ScriptGrader(command="true"),
    }
    return TaskInstance.model_validate({"instance_id": instance_id, **known, **fields})


async def test_what_is_added_is_found_by_id_and_hash(database: Database) -> None:
    """A trainer sends the hash, a human the id; both must give the same task, whole."""
    instances = Instances(database)
    added = task("a__b-1", problem_statement="é \0 \u2028 " + "x" * 100_000, fail_to_pass=("t[\0]",))
    assert await instances.add([added]) == ImportReport(new=1, updated=0, unchanged=0)
    fresh = Instances(database)
    assert await fresh.by_id("a__b-1") == added
    assert await Instances(database).by_hash(added.instance_hash) == added


@pytest.mark.parametrize("instance_hash", [0, -1, 2**63 - 1, 2**63, 10**40])
async def test_unknown_hashes(database: Database, instance_hash: int) -> None:
    """Any integer may come over the wire; none of them may be a fault of the database."""
    with pytest.raises(UnknownInstance, match=str(instance_hash)):
        await Instances(database).by_hash(instance_hash)


@pytest.mark.parametrize("instance_id", ["", "nope", "a\0b", "\ud800", "x" * 5000])
async def test_unknown_ids(database: Database, instance_id: str) -> None:
    """Nor may any text: PostgreSQL fails on NUL and both fail on a lone surrogate."""
    with pytest.raises(UnknownInstance):
        await Instances(database).by_id(instance_id)


async def test_hashes_up_to_the_largest_are_stored(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash fills 63 bits; a 32-bit column or a float would lose some."""
    monkeypatch.setattr(instance_module, "instance_hash", lambda _: 2**63 - 1)
    await Instances(database).add([task("a")])
    assert (await Instances(database).by_hash(2**63 - 1)).instance_id == "a"


async def test_reports_tell_new_updated_and_unchanged(database: Database) -> None:
    """Importing a file again must say that nothing changed, and must not undo its verification."""
    instances = Instances(database)
    await instances.add([task("a"), task("b")])
    await instances.mark_verified("a", "resolved", "unresolved", 5.0)
    await instances.mark_verified("b", "resolved", "unresolved", 5.0)
    report = await instances.add([task("a"), task("b", version="2"), task("c")])
    assert report == ImportReport(new=1, updated=1, unchanged=1)
    assert await instances.verified("a") == Verification("resolved", "unresolved", 5.0)
    assert await instances.verified("b") is None  # its tests may be others now
    assert (await instances.by_id("b")).version == "2"


async def test_verifications_tell_sound_tasks(database: Database) -> None:
    """Only a task whose gold resolves it and whose empty patch does not teaches anything."""
    instances = Instances(database)
    await instances.add([task("a")])
    assert await instances.verified("a") is None
    for gold, empty, sound in (
        ("resolved", "empty_patch", True),
        ("unresolved", "empty_patch", False),
        ("resolved", "resolved", False),
    ):
        await instances.mark_verified("a", gold, empty, 1.0)
        found = await instances.verified("a")
        assert found is not None and found.sound is sound
        assert await instances.sound() == (["a"] if sound else [])


async def test_two_ids_with_one_hash_are_refused(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer names tasks by hash alone: a shared one would grade a rollout against another task's tests."""
    instances = Instances(database)
    monkeypatch.setattr(instance_module, "instance_hash", lambda instance_id: 7 if instance_id in "ab" else 8)
    with pytest.raises(RowRejected, match="'a' and 'b'"):
        await instances.add([task("c"), task("a"), task("b")])
    assert await instances.count() == 0
    await instances.add([task("a")])
    with pytest.raises(RowRejected, match="'a' and 'b'"):
        await instances.add([task("c"), task("b")])
    assert await instances.count() == 1


async def test_an_import_by_another_process_counts(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cached task must not outlive its correction; a task that is new is there at once."""
    monkeypatch.setattr(instances_module, "_TRUSTED_S", 0.05)
    server, importer = Instances(database), Instances(database)
    await importer.add([task("a")])
    first = await server.by_id("a")
    assert await server.by_id("a") is first  # from the cache
    with pytest.raises(UnknownInstance):
        await server.by_id("b")
    await importer.add([task("a", version="2"), task("b")])
    assert (await server.by_id("b")).instance_id == "b"
    await asyncio.sleep(0.06)
    assert (await server.by_hash(first.instance_hash)).version == "2"
    await asyncio.sleep(0.06)
    again = await server.by_id("a")
    await asyncio.sleep(0.06)
    assert await server.by_id("a") is again  # asked, and still the same


async def test_the_cache_is_bounded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set of 20,000 tasks must not end up in the server's memory."""
    monkeypatch.setattr(instances_module, "_CACHED", 3)
    instances = Instances(database)
    await instances.add([task(str(number)) for number in range(10)])
    for number in range(10):
        await instances.by_id(str(number))
    assert len(instances._cache) == len(instances._ids) == 3
    assert {entry[2].instance_id for entry in instances._cache.values()} == {"7", "8", "9"}


async def test_lists_are_ordered_filtered_and_paged(database: Database) -> None:
    """/v1/instances pages through them; a page must neither repeat nor skip one."""
    instances = Instances(database)
    swebench = SwebenchGrader(eval_script="x", log_parser="parse_log_pytest")
    await instances.add(
        [
            task("c", dataset="one", grader=swebench),
            task("a", dataset="one"),
            task("b", dataset="two", repo="p/q", grader=None, ungradable_because="why"),
        ]
    )
    await instances.mark_verified("a", "resolved", "unresolved", 2.0)
    everything = await instances.list()
    assert [(it.instance_id, it.grader) for it in everything] == [("a", "script"), ("b", ""), ("c", "swebench")]
    assert everything[0].verification == Verification("resolved", "unresolved", 2.0)
    assert everything[1].verification is None
    assert everything[1].ungradable_because == "why"
    assert everything[0].instance_hash == task("a").instance_hash
    assert [it.instance_id for it in await instances.list(limit=1, after="a")] == ["b"]
    assert [it.instance_id for it in await instances.list(dataset="one")] == ["a", "c"]
    assert [it.instance_id for it in await instances.list(repo="p/q")] == ["b"]
    assert [it.instance_id for it in await instances.list(gradable=False)] == ["b"]
    assert await instances.count(gradable=True) == 2


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory, swebench4_dir: Path) -> tuple[list[TaskInstance], float]:
    """2,294 instances, the size of SWE-bench, and the seconds of CPU it took to read and convert their rows."""
    if not REAL_ROWS.exists():
        pytest.skip("the real rows are not beside this repository")
    rows = [json.loads(line) for line in REAL_ROWS.read_text().splitlines()]
    file = tmp_path_factory.mktemp("benchmark") / "rows.jsonl"
    with file.open("w") as out:
        for number in range(2294):
            row = rows[number % len(rows)]
            out.write(json.dumps({**row, "instance_id": f"{row['instance_id']}-{number}"}) + "\n")
    began = _cpu_s()
    return read_instances(file, swebench4_dir=swebench4_dir), _cpu_s() - began


async def test_a_whole_benchmark_imports_in_seconds(
    database: Database, benchmark: tuple[list[TaskInstance], float]
) -> None:
    """A quadratic step or a commit per row would take minutes."""
    found, converted_s = benchmark
    instances = Instances(database)
    began = _cpu_s()
    assert await instances.add(found) == ImportReport(new=2294, updated=0, unchanged=0)
    assert await instances.add(found) == ImportReport(new=0, updated=0, unchanged=2294)
    stored_s = _cpu_s() - began
    print(f"CPU: read and converted {converted_s:.1f} s, stored {stored_s:.1f} s")
    assert converted_s + stored_s < 30  # some 6 s; not the time on the clock, which depends on what else runs


def _cpu_s() -> float:
    """Of this process and of the library's processes that have ended."""
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
