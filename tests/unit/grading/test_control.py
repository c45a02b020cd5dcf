"""Which runs clear the host when a grading breaks off; real ones are in tests/conformance/grading/test_blame.py."""

import pytest

from sandbox_server.catalogue.instance import SandboxSpec, ScriptGrader, TaskInstance
from sandbox_server.grading.base import TestRun as Run  # pytest would collect a name that begins with Test
from sandbox_server.grading.control import Control
from sandbox_server.records import VerdictName

_INSTANCE = TaskInstance(
    instance_id="c__c-1",
    repo="c/c",
    sandbox=SandboxSpec(images=("unused",)),
    grader=ScriptGrader(command="true"),
    gold_patch="gold",
)


@pytest.mark.parametrize(
    ("empty", "gold", "works", "patches"),
    [
        (VerdictName.UNRESOLVED, VerdictName.RESOLVED, True, [b""]),
        (VerdictName.NO_RESULTS, VerdictName.RESOLVED, True, [b"", b"gold"]),
        (VerdictName.NO_RESULTS, VerdictName.NO_RESULTS, False, [b"", b"gold"]),
    ],
)
async def test_gold_clears_the_host_where_the_unpatched_tree_gives_no_results(
    empty: VerdictName, gold: VerdictName, works: bool, patches: list[bytes]
) -> None:
    """Where tests do not begin without a fix, every patch that ended its container was masked."""
    asked: list[bytes] = []

    async def run(instance: TaskInstance, patch: bytes) -> Run:
        asked.append(patch)
        return Run(gold if patch else empty, "", f2p_count=0, p2p_count=0)

    assert await Control(run, kept_s=60).works(_INSTANCE, image="i", since=0.0) is works
    assert asked == patches
