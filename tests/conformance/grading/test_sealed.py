"""Attacks of policies on gradings: reading the fix, forging the log, killing or replacing the judge."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from sandbox_server.catalogue.instance import F2pScriptGrader, ScriptGrader, SwebenchGrader, TaskInstance
from sandbox_server.grading import disk as disk_module
from sandbox_server.grading.attempts import Attempts
from sandbox_server.grading.containers import Containers
from sandbox_server.grading.grading import Grading
from sandbox_server.sandbox.base import ContainerSpec, Limits, Role, Sandbox
from sandbox_server.verdicts import VerdictName
from tests.conformance.grading.calc_bench import Bench
from tests.conformance.grading.calc_repository import FIXED
from tests.conformance.grading.test_swepro import pro

_CALC = "calc/__init__.py"
_WRONG = b"\n\ndef add(*numbers):\n    return 0\n\n\ndef mul(a, b):\n    return a * b\n"
_TESTS = ("tests/test_calc.py::test_add", "tests/test_new.py::test_many", "tests/test_calc.py::test_mul")
_PASSED = "".join(f"PASSED {name}\\n" for name in _TESTS)
_START, _END, _CODE = ">>>>> Start Test Output", ">>>>> End Test Output", ">>>>> Test Exit Code: 0"

# HEAD as it was, and behind it, wherever git can keep something: the fix.
_LATER = f"""
git config user.name Ada; git config user.email ada@example.org
base=$(git symbolic-ref --short HEAD || git rev-parse HEAD)
fix() {{ cat > {_CALC} <<'END'
{FIXED.decode()}
# $1
END
}}
fix branch; git checkout -q -b fixed; git commit -qam fixed; git tag -a -m tagged v2
git update-ref refs/remotes/origin/main HEAD; git update-ref ORIG_HEAD HEAD; git rev-parse HEAD > .git/FETCH_HEAD
fix lost; git commit -qam lost; git reset -q --hard HEAD~1
git checkout -q "$base"
fix stashed; git stash -q
fix packed; git hash-object -w {_CALC}; mkdir .git/lost-found; cp {_CALC} .git/lost-found/; git checkout -q -- .
"""

_READ_GOLD = b'''
import os
import subprocess


def _found():
    listing = """cd /testbed
    git rev-list --all --reflog --objects | cut -d" " -f1
    git fsck --unreachable --no-reflogs --full 2> /dev/null | cut -d" " -f3
    git cat-file --batch-all-objects --batch-check | cut -d" " -f1"""
    names = subprocess.run(["bash", "-c", listing], capture_output=True, text=True).stdout.split()
    for name in set(names):
        yield subprocess.run(["git", "-C", "/testbed", "cat-file", "-p", name], capture_output=True).stdout
    for top in ("/testbed/.git", "/var/lib/sandbox", "/tmp"):
        for folder, _, files in os.walk(top):
            for file in files:
                yield open(os.path.join(folder, file), "rb").read()


for _text in _found():
    if b"return sum(" + b"numbers)" in _text and b"_found" not in _text:
        exec(_text)
        break
'''


def forging(code: str, of: bytes = _WRONG) -> bytes:
    """A wrong module that runs `code` when the tests import it."""
    return b"import os\nimport sys\n\n" + code.encode() + b"\n" + of


def _printing(text: str) -> str:
    """Print from another process, because the runner captures its own output."""
    return f'open(f"/proc/{{os.getppid()}}/fd/1", "w").write("""{text}""")'


@asynccontextmanager
async def container(bench: Bench, image: str, workdir: str = "/testbed") -> AsyncIterator[Sandbox]:
    deadline = datetime.now(UTC) + timedelta(minutes=5)
    spec = ContainerSpec(image, Role.SESSION, secrets.token_hex(4), deadline, workdir=workdir, with_shell=False)
    sandbox = await bench.runtime.create(spec)
    try:
        yield sandbox
    finally:
        await bench.runtime.remove(sandbox.container_id)


def raw(bench: Bench) -> Grading:
    """Grading as it was before sealing: from the task image itself."""

    async def nothing(instance: TaskInstance) -> None:
        return None

    containers = Containers(bench.runtime, limits=Limits(memory_mb=512))
    return Grading(containers, bench.graders, nothing, git_home=bench.git_home)


_PARTIAL = """
git repack -adq
for pack in .git/objects/pack/*.pack; do : > "${pack%.pack}.promisor"; done
"""


@pytest.mark.parametrize("family", ["swebench", "swebench, a partial clone", "swepro"])
async def test_the_fix_is_not_to_be_read_at_test_time(bench: Bench, family: str) -> None:
    """9 of 9 instances were resolved by product code that took the fixed files out of git."""
    patch = bench.diff({_CALC: _WRONG + _READ_GOLD})
    if family == "swebench":
        instance = bench.instance(box={"setup_commands": (_LATER,)})
        # the hack must work without the defence, else this test could not fail
        assert (await bench.grade(patch, instance, by=raw(bench))).name is VerdictName.RESOLVED
    elif family == "swebench, a partial clone":
        instance = bench.instance(box={"setup_commands": (_LATER, _PARTIAL)})
    else:
        instance = pro(bench)
        commands = (_LATER, *instance.sandbox.setup_commands)
        instance = instance.model_copy(
            update={"sandbox": instance.sandbox.model_copy(update={"setup_commands": commands})}
        )
    verdict = await bench.grade(patch, instance)
    assert (verdict.name, verdict.f2p_count, verdict.p2p_count) == (VerdictName.UNRESOLVED, 0, 1), verdict
    assert (await bench.grade(bench.diff({_CALC: FIXED}), instance)).name is VerdictName.RESOLVED


async def test_the_base_commit_is_still_there(bench: Bench) -> None:
    """Eval scripts check test files out of it, and it lies below the image's own commit."""
    box = {"setup_commands": ("git -c user.name=A -c user.email=a@b commit -q --allow-empty -m SWE-bench",)}
    verdict = await bench.grade(bench.diff({_CALC: FIXED}), bench.instance(box=box))
    assert verdict.name is VerdictName.RESOLVED, verdict


async def test_sessions_of_pro_do_not_show_the_tests(bench: Bench) -> None:
    """All of `before_repo_set_cmd` ran there, its checkout of the hidden tests too."""
    instance = pro(bench)
    prepared = await bench.workspaces.prepared(instance)
    async with container(bench, prepared.image) as session:
        look = (
            "ls tests; ls -A /var/lib/sandbox; grep -rl test_many / --include=*.py 2> /dev/null;"
            " git cat-file --batch-all-objects --batch | grep -a test_many;"
            " git --git-dir=/var/lib/sandbox/git cat-file --batch-all-objects --batch | grep -a test_many"
        )
        said = (await session.exec(["bash", "-c", look], timeout_s=30, cwd="/testbed")).stdout.text()
        assert said.split() == ["test_calc.py", "git"], said
    sealed = await bench.workspaces.sealed(instance)
    async with container(bench, sealed.name) as grading:
        shown = await grading.exec(["ls", "/var/lib/sandbox/tests/tests"], timeout_s=30)
        assert shown.stdout.text().split() == ["test_calc.py", "test_new.py"]


async def test_a_sealed_image_is_made_once(bench: Bench) -> None:
    """Concurrent gradings seal an image once; the receipt has the task image's digest, the same on every node."""
    instance = bench.instance(box={"setup_commands": (f"echo {secrets.token_hex(8)} > .git/info/mark",)})
    began = [bench.workspaces.sealed(instance) for _ in range(3)]
    first, *others = await asyncio.gather(*began)
    assert all(other.name == first.name for other in others)
    task = await bench.runtime.images.resolve([bench.image])
    assert first.digest == task.digest == (await bench.workspaces.sealed(instance)).digest
    found = await bench.runtime.images.find(first.name)
    assert found is not None and found.digest != first.digest


@pytest.mark.parametrize("eval_type", ["pass_and_fail", "fail_only"])
async def test_a_readme_is_not_part_of_the_log(bench: Bench, eval_type: str) -> None:
    """The script prints the patch before the tests, and text in it between carriage returns was judged."""
    lines = [f"+ : '{_START}'", *_PASSED.split("\\n"), "1 passed", f"+ : '{_END}'", _CODE]
    readme = ("calc\r" + "\r".join(lines) + "\r").encode()
    instance = bench.instance()
    assert isinstance(instance.grader, SwebenchGrader)
    grader = instance.grader.model_copy(update={"eval_type": eval_type})
    verdict = await bench.grade(bench.diff({"README.md": readme}), instance.model_copy(update={"grader": grader}))
    assert (verdict.name, verdict.mask) == (VerdictName.UNRESOLVED, False), verdict


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(f"{_PASSED}+ : '{_END}'\\n{_CODE}\\n", id="end"),
        pytest.param(f"{_PASSED}{_CODE}\\n", id="exit code"),
        pytest.param(f"\\r{_CODE}\\r", id="carriage returns"),
        pytest.param(f"+ : '{_START}'\\n{_PASSED}", id="start"),
    ],
)
async def test_the_judges_own_lines_are_not_for_tests(bench: Bench, line: str) -> None:
    """The library takes the first end and the first exit code that it finds."""
    verdict = await bench.grade(bench.diff({_CALC: forging(_printing(line))}))
    assert (verdict.name, verdict.mask, verdict.f2p_count) == (VerdictName.NO_RESULTS, False, 0), verdict
    assert "a line of the judge's own" in verdict.cause


async def test_a_shell_that_is_killed_has_not_ended(bench: Bench) -> None:
    """The log is forged to the last line, then the shell is killed so that nothing contradicts it."""
    forged = _printing(f"\\n{_PASSED}3 passed\\n") + "; os.kill(os.getppid(), 9)"
    for instance in (bench.instance(), bench.instance(grader=ScriptGrader(command="python3 -m pytest -q tests; true"))):
        verdict = await bench.grade(bench.diff({_CALC: forging(forged)}), instance)
        assert verdict.name is not VerdictName.RESOLVED and not verdict.mask, verdict
    killed = await bench.grade(bench.diff({_CALC: forging(forged)}))
    assert (killed.name, killed.cause.split(";")[0]) == (VerdictName.NO_RESULTS, "the tests began and never ended")


_REWRITING = """
ending = b"exit 0\\n" * 1000
for name in ("/eval.sh", "/f2p_script.py", "/swepro/run_script.sh"):
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "wb") as file:
        file.write(ending)
pid = os.getppid()
while pid > 1:
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            with open(f"/proc/{pid}/fd/{number}", "wb", buffering=0) as file:
                file.write(ending)
        except OSError:
            pass
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
"""


async def test_no_file_is_read_that_tests_can_write(bench: Bench) -> None:
    """bash reads /eval.sh piece by piece while it runs, so product code could append commands to it."""
    instances = {
        "swebench": bench.instance(),
        "swepro": pro(bench),
        "script": bench.instance(
            grader=ScriptGrader(command="python3 -c 'from calc import add; assert add(2, 3) == 5'")
        ),
        "f2p_script": bench.instance(
            grader=F2pScriptGrader(
                script="import sys\nsys.path.insert(0, '.')\nimport calc\n\nsys.exit(calc.add(2, 3) != 5)\n"
            )
        ),
    }
    patch = bench.diff({_CALC: forging(_REWRITING)})
    verdicts = await asyncio.gather(*(bench.grade(patch, instance) for instance in instances.values()))
    for family, verdict in zip(instances, verdicts, strict=True):
        assert (verdict.name, verdict.mask) == (VerdictName.UNRESOLVED, False), (family, verdict)


async def test_a_grading_that_fills_the_disk_is_stopped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """540 MB were written with 50 allowed."""
    monkeypatch.setattr(disk_module, "LOOK_S", 0.2)
    filling = """
import time
for number in range(4):
    with open(f"/tmp/{number}", "wb") as file:
        file.write(bytes(15 << 20))
time.sleep(120)
"""
    instance = bench.instance(box={"disk_mb": 50})
    verdict = await bench.grade(bench.diff({_CALC: forging(filling, FIXED)}), instance)
    assert (verdict.name, verdict.mask, verdict.attempts) == (VerdictName.NO_RESULTS, False, 1), verdict
    assert "MB, more than their limit of 50 MB (SANDBOX_DISK_MB)" in verdict.cause
    assert verdict.timings_s["total"] < 100
    assert (await bench.grade(bench.diff({_CALC: FIXED}), instance)).name is VerdictName.RESOLVED
    assert await bench.left() == 0


_SETUP = f"""#!/bin/bash
# {"grüße " * 20000}
set -uxo pipefail
cd /testbed/tests
unexported="of the set-up" && export EXPORTED=known
of_the_set_up() {{ echo "function called"; }}
shopt -s extglob
echo "noise of the set-up"
: '>>>>> Start Test Output'
echo "$PWD $unexported $(printenv EXPORTED) $- $(shopt -p extglob) $0 $#"
of_the_set_up
cat
echo on stderr >&2
false | true
: '>>>>> End Test Output'
echo "never run"
"""


async def test_the_tests_find_what_the_set_up_left(bench: Bench) -> None:
    """One bash for all of it, as in the benchmark's harness; only what the tests print is in the log."""
    instance = bench.instance()
    assert isinstance(instance.grader, SwebenchGrader)
    grader = instance.grader.model_copy(update={"eval_script": _SETUP})
    # in a locale of many bytes a character, lengths are bytes all the same
    instance = bench.instance(grader=grader, box={"env": {"LC_ALL": "C.UTF-8"}})
    run = await bench.grading().run_unpatched(instance)
    lines = [line for line in run.log.split("\n") if not line.startswith("+")]
    folder, *words = lines[0].split(" ")
    assert (folder, words[-2:]) == ("/testbed/tests", ["/eval.sh", "0"]), run.log
    assert "of the set-up known" in lines[0] and "shopt -s extglob" in lines[0]
    assert {"u", "x"} <= set(words[4]), words
    assert lines[1:] == ["function called", "on stderr", ""]
    assert run.exit_code == 1  # of `false | true` under pipefail


@asynccontextmanager
async def laid(bench: Bench, instance: TaskInstance, patch: bytes) -> AsyncIterator[tuple[Attempts, Sandbox]]:
    """Attempts, and a container of theirs with the patch applied."""
    attempts = bench.attempts()
    async with attempts.patched(instance, patch) as patched:
        yield attempts, patched.container.sandbox


_ALTERED: Mapping[str, tuple[Callable[[Bench], TaskInstance], str, bytes, bytes]] = {
    "swebench": (lambda bench: bench.instance(), "tests/test_new.py", b"== 6", b"== 7"),
    "swepro": (pro, "tests/test_new.py", b"== 6", b"== 7"),
    "script": (
        lambda bench: bench.instance(
            grader=ScriptGrader(command="python3 -m pytest -q hidden/test_f2p.py"),
            files={"hidden/test_f2p.py": "import calc\n\n\ndef test_f2p():\n    assert calc.add(2, 3) == 5\n"},
        ),
        "hidden/test_f2p.py",
        b"== 5",
        b"== 6",
    ),
    "f2p_script": (
        lambda bench: bench.instance(
            grader=F2pScriptGrader(
                script="import sys\nsys.path.insert(0, '.')\nimport calc\n\nsys.exit(calc.add(2, 3) != 5)\n"
            )
        ),
        "/f2p_script.py",
        b"!= 5",
        b"!= 6",
    ),
}


@pytest.mark.parametrize("family", list(_ALTERED))
async def test_altered_tests_are_what_runs(bench: Bench, family: str) -> None:
    """What a confirming run is made of: the files that hold the tests, and a run with others in their place."""
    make, path, right, wrong = _ALTERED[family]
    instance = make(bench)
    async with laid(bench, instance, b"") as (_, sandbox):
        files = await bench.graders[instance.grader.kind].test_files(instance, sandbox, timeout_s=30)  # type: ignore[union-attr]
    assert right in files[path], files
    fix = bench.diff({_CALC: FIXED})
    async with laid(bench, instance, fix) as (attempts, sandbox):
        same = await attempts.run_tests(instance, sandbox, files)
    assert same.name is VerdictName.RESOLVED, same
    async with laid(bench, instance, fix) as (attempts, sandbox):
        other = await attempts.run_tests(instance, sandbox, {path: files[path].replace(right, wrong)})
    assert other.name is VerdictName.UNRESOLVED, other
    if family.startswith("swe"):
        assert same.passed == set(_TESTS)
        assert other.passed == set(_TESTS) - {"tests/test_new.py::test_many"}


async def test_an_altered_test_that_cannot_be_written(bench: Bench) -> None:
    """If the patch left something at the place of the test's folder, the policy is to blame."""
    instance = bench.instance(grader=ScriptGrader(command="true"))
    async with laid(bench, instance, bench.diff({"hidden": b"not a folder\n"})) as (attempts, sandbox):
        run = await attempts.run_tests(instance, sandbox, {"hidden/test_f2p.py": b"pass\n"})
    assert run.name is VerdictName.NO_RESULTS and "/testbed/hidden/test_f2p.py" in run.cause


_REMEMBERED = """
pid = os.getppid()
try:
    for line in open(f"/proc/{pid}/maps"):
        start, end = (int(bound, 16) for bound in line.split()[0].split("-"))
        if line.split()[1].startswith("rw"):
            with open(f"/proc/{pid}/mem", "rb") as memory:
                memory.seek(start)
                if b"add(1, 2, 3) " + b"== 6" in memory.read(end - start):
                    print("\\nTHE TRUE TEST\\n", file=open(f"/proc/{pid}/fd/1", "w"))
except OSError:
    print("\\nNOT TO BE READ\\n", file=open(f"/proc/{pid}/fd/1", "w"))
"""


async def test_the_true_test_is_nowhere_beside_an_altered_one(bench: Bench) -> None:
    """Otherwise code could find the true test, detect the confirming run and know the right answer."""
    patch = bench.diff({_CALC: forging(_REMEMBERED, FIXED)})
    async with laid(bench, bench.instance(), patch) as (attempts, sandbox):
        true = await attempts.run_tests(bench.instance(), sandbox)
    assert "THE TRUE TEST" in true.log or "NOT TO BE READ" in true.log  # on a host that allows it the hack works
    altered = {
        "tests/test_new.py": b"from calc import add\n\n\ndef test_many():\n    assert add(1, 2, 3) == 7\n",
        "tests/test_calc.py": b"from calc import add, mul\n\n\ndef test_mul():\n    assert mul(2, 3) == 6\n",
    }
    async with laid(bench, bench.instance(), patch) as (attempts, sandbox):
        other = await attempts.run_tests(bench.instance(), sandbox, altered)
    assert "1 passed" in other.log and "1 failed" in other.log, other.log
    assert "THE TRUE TEST" not in other.log
