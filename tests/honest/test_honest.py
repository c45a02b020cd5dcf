"""No honest patch suffers: fixes that are not gold are resolved with full counts. HONEST=all grades all of them."""

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.live.serving import Server, bash, serving

from .patches import WITHOUT_ALL, Honest, chosen, every_patch


@pytest.fixture(scope="module")
def server(sample_images: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Of these tests' own, with the confirming run that a trainer gets."""
    folder, rows = tmp_path_factory.mktemp("honest"), ROOT / "examples" / "instances.jsonl"
    with serving(folder, rows, pool_size=0, confirm="resolved") as server:
        yield server


def content(honest: Honest, row: dict, folder: Path) -> str:
    """The policy's action: a command, or where the dialect is `code` the text of the one file."""
    if row.get("dialect") != "code":
        patch = base64.b64encode(honest.text).decode()
        return bash(
            f"echo {patch} | base64 -d | git apply && {{ {honest.ending}; }} > /dev/null 2>&1; git log --oneline"
        )
    source = row["code"]["path"]
    path = folder / source
    path.parent.mkdir(parents=True)
    path.write_bytes((ROOT / "examples" / honest.sample / "repo" / source).read_bytes())
    subprocess.run(["git", "apply", "-"], cwd=folder, input=honest.text, check=True)
    return path.read_text()


def test_there_are_enough_and_none_is_gold() -> None:
    """Without them a confirming run that knows gold alone would look right."""
    patches = every_patch()
    assert len(patches) >= 40
    texts = [one.text for one in patches]
    assert len(set(texts)) == len(texts)
    for sample in {one.sample for one in patches}:
        assert sum(one.sample == sample for one in patches) > WITHOUT_ALL
        assert (ROOT / "examples" / sample / "gold.patch").read_bytes() not in texts


@pytest.mark.parametrize("honest", chosen(), ids=str)
def test_a_right_answer_is_resolved(
    server: Server, sample_instances: dict[str, dict], tmp_path: Path, honest: Honest
) -> None:
    """Another algorithm, other names, more files, commits and branches: a false alarm would punish what is right."""
    row = sample_instances[honest.sample]
    sid = server.begin(row["instance_id"])
    server.say(sid, content(honest, row, tmp_path))
    server.finish(sid)
    answer = server.reward(sid)
    assert (answer["verdict"], answer["mask"], answer["reward"]) == ("resolved", False, 1.0), (
        answer,
        server.get(f"/v1/receipts/{answer['receipt']}") if answer["receipt"] else None,
    )
    assert (answer["f2p_count"], answer["p2p_count"]) == (answer["f2p_total"], answer["p2p_total"])
