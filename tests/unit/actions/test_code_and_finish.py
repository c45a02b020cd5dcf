"""The tools `code` and `finish`."""

import pytest

from sandbox_server.actions import registry
from sandbox_server.actions.base import Call, Observation
from sandbox_server.actions.profiles import OPENHANDS, PLAIN
from sandbox_server.catalogue.instance import CodeTask, SandboxSpec, TaskInstance
from sandbox_server.errors import SandboxDiskFull
from sandbox_server.sandbox.base import ExecResult, Output
from tests.golden.play import context
from tests.unit.actions.fakes import FakeSandbox


def ran(exit_code: int | None, stdout: bytes = b"", *, timed_out: bool = False) -> ExecResult:
    return ExecResult(exit_code, Output(stdout), Output(b""), timed_out, 0.1)


def instance(**spec) -> TaskInstance:
    return TaskInstance(
        instance_id="i",
        repo="a/b",
        sandbox=SandboxSpec(images=("x",), workdir="/repo", **spec),
        code=CodeTask(path="src/solve.py", test_command="python -m pytest -q"),
    )


async def act(sandbox: FakeSandbox, task: TaskInstance, source: str = "x = 1\n", profile: str = PLAIN) -> Observation:
    around = context(sandbox, instance=task, profile=profile, command_timeout_s=7.0)
    return await registry.tools()["code"].run(Call("code", {"source": source}), around)


@pytest.mark.parametrize("profile", [OPENHANDS, PLAIN])
async def test_a_passing_test_gives_the_protocols_own_sentence(profile):
    """The document's example does not come back to the letter."""
    sandbox = FakeSandbox(exec_result=ran(0, b"1 passed\n"))
    observation = await act(sandbox, instance(), "naïve = '\ud800'\n", profile)
    assert observation == Observation("No errors found in test.", exit_code=0)
    assert sandbox.files == {"/repo/src/solve.py": "naïve = '\ufffd'\n".encode()}
    assert sandbox.executed == [
        (["bash", "-c", "python -m pytest -q"], {"timeout_s": 7.0, "cwd": "/repo", "user": None, "merge_streams": True})
    ]


async def test_the_instances_activation_comes_first():
    """The test runs with another Python than the task's."""
    sandbox = FakeSandbox(exec_result=ran(0))
    await act(sandbox, instance(activate="source /env/bin/activate"))
    assert sandbox.executed[0][0] == ["bash", "-c", "source /env/bin/activate\npython -m pytest -q"]


@pytest.mark.parametrize(
    ("answer", "text", "exit_code"),
    [
        (ran(1, b"E  assert 1 == 2\n1 failed\n"), "E  assert 1 == 2\n1 failed", 1),
        (ran(2), "The test failed with exit code 2 and printed nothing.", 2),
        (ran(None, b"half\n", timed_out=True), "half\n[The test ran out of time.]", None),
        (ran(None, timed_out=True), "[The test ran out of time.]", None),
        (ran(0, timed_out=True), "[The test ran out of time.]", None),
    ],
)
async def test_a_failing_test_gives_its_output(answer, text, exit_code):
    """A failure looks like a pass, or says nothing."""
    observation = await act(FakeSandbox(exec_result=answer), instance())
    assert observation == Observation(text, exit_code=exit_code, timed_out=answer.timed_out)


async def test_a_long_output_is_cut():
    """A test that prints a megabyte fills the context."""
    observation = await act(FakeSandbox(exec_result=ran(1, b"x" * 100_000)), instance())
    assert len(observation.text) < 31_000 and "truncated" in observation.text


async def test_an_instance_without_a_file_says_so_and_runs_nothing():
    """The dialect is set for every task; one that has no `code` ends in an exception."""
    sandbox = FakeSandbox()
    observation = await act(sandbox, instance().model_copy(update={"code": None}))
    assert "names no file" in observation.text
    assert not sandbox.files and not sandbox.executed


async def test_a_file_that_cannot_be_written_is_an_observation_a_full_disk_is_not():
    """What a policy did to its own tree is an HTTP error; or our fault is its observation."""
    sandbox = FakeSandbox(errors={("write", "/repo/src/solve.py"): IsADirectoryError("it is a folder")})
    observation = await act(sandbox, instance())
    assert observation.text == "/repo/src/solve.py could not be written: it is a folder"
    assert not sandbox.executed
    sandbox.errors["write", "/repo/src/solve.py"] = SandboxDiskFull("full")
    with pytest.raises(SandboxDiskFull):
        await act(sandbox, instance())


@pytest.mark.parametrize(("profile", "head"), [(OPENHANDS, "EXECUTION RESULT of [finish]:\n"), (PLAIN, "")])
async def test_finish_says_that_it_is_over_and_ends_nothing(profile, head):
    """A rollout ends before its postprocess, or the policy hears nothing."""
    sandbox = FakeSandbox()
    observation = await registry.tools()["finish"].run(Call("finish", {}), context(sandbox, profile=profile))
    assert observation.text.startswith(f"{head}The interaction is over. The patch is taken")
    assert "/postprocess" in observation.text
    assert not sandbox.executed and not sandbox.shell.asked
