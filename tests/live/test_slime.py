"""slime's rows: rolled out and graded as in slime, with the E2B SDK and with our client; and by our graders."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from sandbox_client import slime as client
from sandbox_client.errors import CommandFailed, CommandTimedOut

from tests.conftest import ROOT
from tests.deployment import bridge_gateway

from .serving import Server, serving, until
from .slime.rollout import AGENT, rollouts

ROWS = ROOT / "examples" / "slime" / "rows.jsonl"
IDS = ("slime__ledger-swepro", "slime__ledger-eval-cmd", "slime__ledger-f2p-script")
SDK = ROOT / ".cache" / "sdk" / "e2b-newest" / "bin" / "python"
_LEDGER = ROOT / "examples" / "ledger"


def patches() -> dict[str, str]:
    """Each row with the correct patch, and one row with a wrong one."""
    right, wrong = ((_LEDGER / f"{name}.patch").read_text() for name in ("gold", "wrong"))
    return {f"{id_} right": right for id_ in IDS} | {f"{IDS[0]} wrong": wrong}


def as_expected(found: Mapping[str, Mapping[str, object]]) -> None:
    assert {token: one["reward"] for token, one in found.items()} == {
        token: float(token.endswith(" right")) for token in patches()
    }, found
    for one in found.values():
        assert (one["applied"], one["exit_code"], one["calls"]) == (True, 0, 2), one
        assert json.loads(str(one["told"])) == {"result": "done"}
        assert "PROBLEM_STATEMENT" not in str(one["diff"]) and "ledger/money.py" in str(one["diff"])


@pytest.fixture(scope="module")
def bridge() -> str:
    """Address by which containers reach this host."""
    return bridge_gateway()


@pytest.fixture(scope="module")
def server(sample_images: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """slime's rows are its instances: the three of the example, and one of slime's protocol `swebench`."""
    folder = tmp_path_factory.mktemp("slime")
    shutil.copytree(ROWS.parent, folder / "rows")
    ledger = next(
        row
        for row in map(json.loads, (ROOT / "examples" / "instances.jsonl").read_text().splitlines())
        if row["instance_id"] == "samples__ledger-12"
    )
    benchmark = {**ledger, "instance_id": "slime__ledger-swebench"}
    with (folder / "rows" / "rows.jsonl").open("a") as rows:
        rows.write(json.dumps({"prompt": "", "label": "x", "metadata": {"remote_env_info": benchmark}}) + "\n")
    with serving(folder, folder / "rows" / "rows.jsonl", box_timeout_exit="false", box_raw_images="*") as server:
        yield server


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """The agent's program, on this host."""
    path = tmp_path / "claude"
    path.write_text(AGENT)
    return path


@pytest.fixture
def url(server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a trainer would set."""
    monkeypatch.setenv("SANDBOX_URL", server.url)
    return server.url


def test_by_the_e2b_sdk(server: Server, bridge: str, agent: Path, missing: Callable[[str], None]) -> None:
    """An unmodified slime: the newest SDK, two URLs, the image in the metadata."""
    if not SDK.exists():
        missing("an environment with the e2b package: make setup")
    clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    base = f"{server.url}/e2b"
    done = subprocess.run(
        [SDK, Path(__file__).parent / "slime" / "by_e2b.py"],
        input=json.dumps({"rows": str(ROWS), "patches": patches(), "host": bridge, "agent": str(agent)}),
        env=clean | {"E2B_API_URL": base, "E2B_SANDBOX_URL": base, "E2B_API_KEY": "e2b_" + "0" * 40},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    as_expected(json.loads(done.stdout))
    until(lambda: server.in_use("role=session") == [], what="no box is left")


async def test_by_our_client(server: Server, url: str, bridge: str, agent: Path) -> None:
    """The same steps with the drop-in, which waits for the agent instead of polling every 5 s."""

    class Sealed(client.DockerServiceSandbox):
        task_image = "sealed"  # this server's setting, for an unmodified slime, is another

        async def __aenter__(self) -> client.DockerServiceSandbox:
            await super().__aenter__()
            assert (await self.exec("git -C /testbed rev-parse --verify v9.9"))[0] != 0, "the agent reads the fix"
            return self

    evaluator = client.EvaluationSandbox
    as_expected(await rollouts(ROWS, patches(), Sealed, client.exec_and_wait, bridge, agent, evaluator=evaluator))
    until(lambda: server.in_use("role=session") == [], what="no box is left")


@pytest.mark.parametrize("instance", [*IDS, "slime__ledger-swebench"])
def test_by_our_graders(server: Server, instance: str) -> None:
    """The same rows through /start_instance, /postprocess, /compute_reward: slime's data for any trainer."""
    for name, reward in (("gold", 1.0), ("wrong", 0.0)):
        sid = server.begin(instance)
        patch = (_LEDGER / f"{name}.patch").read_text()
        said = server.run(sid, f"cd /testbed && git apply - <<'END_OF_PATCH' && echo applied\n{patch}END_OF_PATCH")
        assert "applied" in said
        server.finish(sid)
        assert b"tests/" not in server.patch(sid), "the tests that the row brings are taken for the agent's work"
        graded = server.reward(sid)
        assert (graded["reward"], graded["resolved"], graded["mask"]) == (reward, reward == 1.0, False), graded
        assert graded["verdict"] == ("resolved" if reward else "unresolved"), graded
        if instance in (IDS[0], "slime__ledger-swebench"):
            assert (graded["f2p_total"], graded["p2p_total"], graded["p2p_count"]) == (5, 14, 14), graded


async def test_the_contract(url: str, tmp_path: Path) -> None:
    """What slime relies on, case by case."""
    async with client.DockerServiceSandbox("sandbox-samples/ledger:latest", size="sm", work_user="x") as sb:
        assert sb.sandbox_id.isdecimal()
        assert await sb.exec("echo out; echo err >&2; exit 3") == (3, "out\n", "err\n")
        assert (await sb.exec("id -un; echo $A", user="nobody", env={"A": "b c"}))[1] == "nobody\nb c\n"
        with pytest.raises(RuntimeError, match=r"exit=3.*echo no") as failed:
            await sb.exec("echo no; echo why >&2; exit 3", check=True, idempotent=False)
        assert "why" in str(failed.value) and isinstance(failed.value, CommandFailed)
        with pytest.raises(CommandTimedOut) as timed_out:
            await sb.exec("echo before; sleep 60", timeout=3)
        assert timed_out.value.stdout == "before\n" and not isinstance(timed_out.value, asyncio.TimeoutError)
        big = tmp_path / "tools.tar"
        big.write_bytes(os.urandom(3 << 20))
        await asyncio.gather(*(sb.write_file(f"/opt/{n}/tools", big) for n in range(3)))
        await sb.write_file("/w/text", "gr\u00fc\u00dfe", user="nobody")
        await sb.write_file("/w/bytes", b"\xff\0")
        same = await sb.exec("sha256sum /opt/*/tools | cut -c1-64 | uniq | wc -l; stat -c %U /w/text")
        assert same == (0, "1\nnobody\n", "")
        assert await sb.read_file("/w/text") == "gr\u00fc\u00dfe"
        assert await sb.read_file("/w/bytes") == "\ufffd\0"
        assert [await sb.read_file(path) for path in ("/absent", "/w")] == ["", ""]
        code, tail = await client.exec_and_wait(
            sb, cmd="echo $HOME; pwd; seq 1000 >&2; exit 7", time_budget_sec=30, tag="t", workdir="/testbed"
        )
        assert code == 7 and tail.endswith("999\n1000\n") and len(tail) == 512
        whole = await client.exec_and_wait(sb, cmd="pwd", time_budget_sec=30, tag="t", workdir="/w", want_output=True)
        assert whole == (0, "/w\n")
        assert await client.exec_and_wait(sb, cmd="true", time_budget_sec=30, tag="t") == (0, "")
        assert await client.exec_and_wait(sb, cmd="sleep 4713", time_budget_sec=1, tag="long") == (-1, "")
        assert (await sb.exec("pgrep -fx 'sleep 4713'"))[0] == 0, "past its budget a command goes on"
    assert await sb.read_file("/w/text") == ""
