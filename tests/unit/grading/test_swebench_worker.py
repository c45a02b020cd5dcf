"""The process that holds the swebench library, and its judges: starts, ends, bounds and imports."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.grading import library as library_module
from sandbox_server.grading.base import Judging
from sandbox_server.grading.graders import swebench as swebench_module
from sandbox_server.grading.graders.swebench import Swebench
from sandbox_server.grading.library import SwebenchLibrary, UnjudgeableLog, _message, _row
from sandbox_server.grading.patching import APPLY_COMMANDS
from sandbox_server.grading.supervised import SupervisedRun
from sandbox_server.sandbox.base import Output, Sandbox
from sandbox_server.verdicts import VerdictName
from tests.unit.grading.swebench_logs import instance, summary, whole
from tests.waiting import eventually


def pid_of(library: SwebenchLibrary) -> int:
    worker = library._worker
    assert worker is not None
    return worker.process.pid


async def killed(library: SwebenchLibrary) -> None:
    """Kill the worker, and wait for its end."""
    worker = library._worker
    assert worker is not None
    worker.process.kill()
    await worker.process.wait()


def judges_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


async def without_judges(pid: int) -> None:
    """Within 9 s, because the kernel ends a judge after 10 s of CPU."""
    for _ in range(450):
        if not judges_of(pid):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("judges are left")


async def test_a_script_is_asked_for_once(library: SwebenchLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request waits for the worker, so scripts are cached; another row of the same id needs its own script."""
    asked: list[str] = []
    ask = library._ask

    async def counting(op: str, task: TaskInstance, **more: str) -> dict[str, object]:
        asked.append(op)
        return await ask(op, task, **more)

    monkeypatch.setattr(library, "_ask", counting)
    row, changed = instance(f2p=("t.py::once",)), instance(f2p=("t.py::other",))
    first = await library.script(row)
    assert await library.script(row) == first
    assert asked == ["script"]
    await library.script(changed)
    assert asked == ["script"] * 2
    dead = pid_of(library)
    await killed(library)
    await library.script(changed)
    assert asked == ["script"] * 3, "it was asked for so that the worker runs"
    assert pid_of(library) != dead
    # half an hour of tests must not be lost because the kernel chose an idle worker
    os.kill(pid_of(library), signal.SIGKILL)
    assert (await library.report(instance(), whole(summary()))).resolved


async def test_a_worker_that_hangs_is_ended() -> None:
    """A timeout that does not kill the process leaves it using a CPU."""
    library = SwebenchLibrary(Judging(wall_s=0.4))
    library_module._GRACE_S, before = 0.1, library_module._GRACE_S
    try:
        await library.script(instance())
        pid = pid_of(library)
        os.kill(pid, signal.SIGSTOP)
        assert (await library.report(instance(), whole(summary()))).resolved, "another worker was not asked"
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    finally:
        library_module._GRACE_S = before
        await library.close()


async def test_a_cancelled_request_leaves_no_judge(library: SwebenchLibrary) -> None:
    """A cancelled grading must not keep using a CPU, nor answer another request."""
    await library.report(instance(), whole(summary()))  # a worker runs
    pid = pid_of(library)
    asked = asyncio.create_task(library.report(instance(), _QUADRATIC))

    async def judging() -> list[str]:
        return judges_of(pid)

    await eventually(judging)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    await without_judges(pid)
    assert (await library.report(instance(), whole(summary()))).resolved


_QUADRATIC = whole("9" * 3_000_000 + "\n", 5)
"""Some of the library's expressions try each of these digits as the beginning of a number."""


async def test_a_caller_that_leaves_as_its_request_is_read_leaves_no_judge(library: SwebenchLibrary) -> None:
    """The signal that ends a judge was asked for after the request was read: a caller that left before was missed."""
    await library.report(instance(), whole(summary()))  # a worker runs
    worker = library._worker
    assert worker is not None
    message = _message({"op": "report", "row": _row(instance()), "log": _QUADRATIC})
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert worker.pass_on(theirs)
        await asyncio.to_thread(ours.sendall, message)
    await without_judges(pid_of(library))


async def test_a_log_that_takes_too_long_is_unjudgeable_and_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gold patch once waited 1,084 s for the judge of such a log."""
    swebench = Swebench(Judging(cpu_s=1, wall_s=120))
    library = swebench._library
    try:
        await library.script(instance())
        attackers = [asyncio.create_task(library.report(instance(), _QUADRATIC)) for _ in range(3)]
        await asyncio.sleep(0.5)
        began = time.monotonic()
        for _ in range(5):
            assert (await library.report(instance(), whole(summary()))).resolved
        assert time.monotonic() - began < 60
        assert not any(task.done() for task in attackers)
        for found in await asyncio.gather(*attackers, return_exceptions=True):
            assert isinstance(found, UnjudgeableLog) and "SANDBOX_JUDGE_TIMEOUT_S" in str(found)
        await without_judges(pid_of(library))

        # as a fault of the service it would be masked, and a patch can cause it at will
        async def supervised(*args: object) -> SupervisedRun:
            return SupervisedRun(Output(b"9" * 3_000_000), "", "", True, "", 0, 0, False, 1.0, 0)

        monkeypatch.setattr(swebench_module, "_supervise", supervised)
        run = await swebench.run(instance(), cast(Sandbox, None), timeout_s=5)
        assert run.name is VerdictName.NO_RESULTS and "cannot be judged" in run.cause
    finally:
        await swebench.close()


async def test_a_log_that_takes_too_much_memory_is_unjudgeable() -> None:
    """Its judge must not exhaust the host's memory, where the kernel chooses which process to kill."""
    library = SwebenchLibrary(Judging(memory_mb=64))
    try:
        with pytest.raises(UnjudgeableLog, match="SANDBOX_JUDGE_MEMORY_MB"):
            await library.report(instance(), whole("ab\n" * 2_000_000))
        assert (await library.report(instance(), whole(summary()))).resolved
    finally:
        await library.close()


def test_the_worker_ends_with_its_parent() -> None:
    """A server that is killed leaves no process behind."""
    worker = Path(library_module.__file__).with_name("worker.py")
    ours, theirs = socket.socketpair()
    with theirs:
        argv = [sys.executable, "-I", str(worker), str(theirs.fileno()), "1", "4", "1000000"]
        process = subprocess.Popen(argv, pass_fds=[theirs.fileno()])
    with ours:
        assert ours.recv(1) == b"r"
    assert process.wait(timeout=10) == 0


async def test_what_the_library_prints_stays_out_of_the_replies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parser that prints (three do) would break the protocol."""
    worker = Path(library_module.__file__).with_name("worker.py")
    noisy = tmp_path / "noisy.py"
    noisy.write_text(
        "import runpy, sys, types\n"
        "def module(name, **held):\n"
        "    sys.modules['swebench.harness.' + name] = made = types.ModuleType(name)\n"
        "    made.__dict__.update(held)\n"
        "def make_test_spec(row):\n"
        "    print('noise', flush=True)\n"
        "    return types.SimpleNamespace(eval_script='S')\n"
        "module('grading'), module('constants')\n"
        "module('log_parsers', PARSER_REGISTRY={'parse_log_pytest': None})\n"
        "module('utils', make_test_spec=make_test_spec)\n"
        f"runpy.run_path({str(worker)!r}, run_name='__main__')\n"
    )
    monkeypatch.setattr(library_module, "_WORKER", noisy)
    library = SwebenchLibrary()
    try:
        assert await library.script(instance()) == "S"
    finally:
        await library.close()


def test_the_api_process_imports_nothing_heavy() -> None:
    """The library's own imports cost seconds and 170 MB in every server."""
    code = (
        "import sys, sandbox_server.grading.queue\n"
        "from sandbox_server.grading.registry import load_graders, load_rewards\n"
        "assert {'swebench', 'script', 'f2p_script', 'swepro'} <= set(load_graders())\n"
        "load_rewards()\n"
        "heavy = {'swebench', 'datasets', 'modal', 'docker', 'pandas', 'pyarrow', 'sqlalchemy', 'fastapi'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    root = Path(library_module.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, cwd=root, check=True)
    assert done.stdout.decode().strip() == "[]"


_IMPORTING = """
import json, sys
from sandbox_server.grading import worker

worker._UNUSED = tuple(sys.argv[1:]) or worker._UNUSED
worker._import_library()
found = {"marker": worker._library("constants").START_TEST_OUTPUT, "whole": "pandas" in sys.modules}
if found["whole"]:
    from swebench.harness.run_evaluation import GIT_APPLY_CMDS
    found["ladder"] = GIT_APPLY_CMDS
print("FOUND" + json.dumps(found))
"""


def imported(*stand_ins: str) -> dict[str, object]:
    """What a worker's process loads if `stand_ins` are left out."""
    env = {"PATH": os.defpath, "HOME": "/nonexistent", "PYTHON_DOTENV_DISABLED": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", _IMPORTING, *stand_ins]
    done = subprocess.run(command, capture_output=True, timeout=120, check=True, env=env)
    return json.loads(done.stdout.decode().rpartition("FOUND")[2])


def test_what_does_not_judge_is_not_loaded() -> None:
    """A worker takes 165 MB and 1.7 s of CPU."""
    assert imported() == {"marker": ">>>>> Start Test Output", "whole": False}


def test_all_is_loaded_if_the_library_cannot_do_without() -> None:
    """A release that uses more of a module can judge nothing.

    Its apply commands are ours: a patch that the benchmark would have taken must not fail here, nor the
    other way round.
    """
    found = imported("swebench.harness.constants")
    assert (found["marker"], found["whole"]) == (">>>>> Start Test Output", True)
    assert found["ladder"] == list(APPLY_COMMANDS)
