"""What goes into slime's own modules, and what is said where slime is not there; the sandbox itself is tested live."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_client import slime, slime_generate
from sandbox_client.errors import SettingsError

GENERATE = """
from slime.agent.sandbox import E2BSandbox


async def generate(args, sample, sampling_params, evaluation=False):
    return E2BSandbox.__name__, args, sample, sampling_params, evaluation
"""
SWE = "from slime.agent.sandbox import E2BSandbox, exec_and_wait\n"
SANDBOX = """
class E2BSandbox:
    pass


async def exec_and_wait(sb, **options):
    return "slime's own", options
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Packages of slime's names and shape, on the path for one test."""
    for name, text in {
        "examples/coding_agent_rl/generate.py": GENERATE,
        "examples/coding_agent_rl/swe.py": SWE,
        "slime/agent/sandbox.py": SANDBOX,
        "slime/agent/harness/common.py": "from slime.agent.sandbox import exec_and_wait\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    slime_generate.example.cache_clear()
    yield "examples.coding_agent_rl"
    slime_generate.example.cache_clear()
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("examples", "slime"):
            del sys.modules[name]


async def test_slimes_example_gets_our_sandbox(package: str) -> None:
    """Both of its modules make sandboxes by a name of their own, and two more wait for commands by theirs."""
    assert await slime_generate.generate(1, 2, {}, evaluation=True) == ("DockerServiceSandbox", 1, 2, {}, True)
    assert vars(sys.modules[f"{package}.swe"])["E2BSandbox"] is slime.EvaluationSandbox
    for name in (f"{package}.swe", "slime.agent.harness.common", "slime.agent.sandbox"):
        waiter = vars(sys.modules[name])["exec_and_wait"]
        assert await waiter(object(), tag="x") == ("slime's own", {"tag": "x"}), "another sandbox is none of ours"
        with pytest.raises(SettingsError, match="outside of `async with`"):
            await waiter(slime.DockerServiceSandbox("i"), cmd="true", time_budget_sec=1, tag="x")


def test_slime_sees_that_it_takes_evaluation() -> None:
    """It looks at the signature, and leaves the argument out of functions without it."""
    assert "evaluation" in inspect.signature(slime_generate.generate).parameters


async def test_without_slime(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module itself can be imported anywhere; the first sample says what is missing."""
    slime_generate.example.cache_clear()
    monkeypatch.setenv("SANDBOX_SLIME_EXAMPLE", "no_such_example")
    with pytest.raises(SettingsError, match=r"no_such_example cannot be imported .* on PYTHONPATH"):
        await slime_generate.generate(None, None, {})


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, (3600, 6, "md", None)),
        (
            {
                "SWE_SANDBOX_LIFETIME_SEC": "60",
                "SWE_RPC_RETRIES": "2",
                "SWE_E2B_SANDBOX_SIZE": "sm",
                "SWE_SANDBOX_IMAGE_METADATA_KEY": "k",
            },
            (60, 2, "sm", "k"),
        ),
        ({"SWE_RPC_RETRIES": "2", "SLIME_AGENT_SANDBOX_RPC_RETRIES": "3"}, (3600, 3, "md", None)),
    ],
)
def test_slimes_variables(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], found: tuple[int, int, str, str | None]
) -> None:
    """The newer name counts before the older, an argument before both."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    sandbox = slime.DockerServiceSandbox("image")
    assert (sandbox.timeout, sandbox.rpc_retries, sandbox.size, sandbox.image_metadata_key) == found
    given = slime.DockerServiceSandbox("image", timeout=5, rpc_retries=0, size="", image_metadata_key="x", destroy=1)
    assert (given.timeout, given.rpc_retries, given.image_metadata_key, given.sandbox_id) == (5, 0, "x", "")


def test_a_variable_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Named, with what it holds, when the sandbox is made and not in the middle of a step."""
    monkeypatch.setenv("SLIME_AGENT_SANDBOX_LIFETIME_SEC", "an hour")
    with pytest.raises(SettingsError, match=r"SLIME_AGENT_SANDBOX_LIFETIME_SEC .* 'an hour'"):
        slime.DockerServiceSandbox("image")
