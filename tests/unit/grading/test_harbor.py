"""Rewards that Harbor's tests write, and the files that are placed for them."""

from pathlib import Path

import pytest

from sandbox_server.catalogue.harbor.archives import packed
from sandbox_server.grading.carrying import refusal
from sandbox_server.grading.graders.harbor import named, rewards_of, scored


@pytest.mark.parametrize(
    ("text", "path", "rewards", "total"),
    [
        ("1", "reward.txt", {"reward": 1.0}, 1.0),
        (" 0.25\n", "reward.txt", {"reward": 0.25}, 0.25),
        ("0.5", "reward.json", {"reward": 0.5}, 0.5),
        ('{"reward": 0.5, "speed": 9}', "reward.json", {"reward": 0.5, "speed": 9.0}, 0.5),
        ('{"a": 1, "b": 0}', "reward.json", {"a": 1.0, "b": 0.0}, 0.5),
        ('{"a": true}', "reward.json", {"a": 1.0}, 1.0),
    ],
)
def test_rewards(text: str, path: str, rewards: dict[str, float], total: float) -> None:
    """A reward differs from what Harbor reads of the same file."""
    assert rewards_of(text, path) == rewards
    assert scored(rewards).total == pytest.approx(total)


@pytest.mark.parametrize(
    ("script", "read"),
    [
        ("echo 1 > /logs/verifier/reward.txt\n", ["reward.txt"]),
        ("python3 score.py > $LOGS/reward.json\n", ["reward.json"]),
        ("echo 0 > reward.txt; score reward.json\n", ["reward.json", "reward.txt"]),
        ("a program that knows where\n", ["reward.json", "reward.txt"]),
        ("", ["reward.json", "reward.txt"]),
    ],
)
def test_a_reward_is_read_where_the_tests_write_it(script: str, read: list[str], tmp_path: Path) -> None:
    """Tests that write reward.txt run a program of the agent's, which had written reward.json: 1.0."""
    (tmp_path / "test.sh").write_text(script)
    assert [Path(path).name for path in named(packed(tmp_path) if script else "")] == read


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", "reward.txt"),
        ("nan", "reward.txt"),
        ("1e999", "reward.txt"),
        ("NaN", "reward.json"),
        ('{"reward": Infinity}', "reward.json"),
        ('{"reward": "1"}', "reward.json"),
        ('{"reward": 1%s}' % ("0" * 400), "reward.json"),
        ("{}", "reward.json"),
        ("[1]", "reward.json"),
        ("[" * 100_000, "reward.json"),
    ],
)
def test_what_is_no_reward(text: str, path: str) -> None:
    """A reward that is no number reaches a trainer, or ends its grading as a defect of the service."""
    with pytest.raises(ValueError, match="holds"):
        rewards_of(text, path)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (b"sandbox-files 6 16\n./app\0./app/hello.txt\0archive", ""),
        (b"sandbox-files 0 0\narchive", ""),
        (b"diff --git a/x b/x\n", "not by a diff"),
        (b"sandbox-files 6 99\n./app\0", "are cut off"),
        (b"sandbox-files 7 0\n./tests", "are cut off"),
        (b"sandbox-files 8 0\n./tests\0", "not carried: '/tests'"),
        (b"sandbox-files 22 0\n./app/../logs/verifie\0", "not carried"),
        (b"sandbox-files 7 0\n./app2\0", "not carried"),
        (b"sandbox-files 7 1\n./tests\0", "are cut off"),
        (b"sandbox-files -1 0\n", "not by a diff"),
    ],
)
def test_files_that_are_refused(files: bytes, why: str) -> None:
    """Files that somebody else than the service packed remove what the tests need, and pass."""
    said = refusal(files, ["/app", "/logs/artifacts"])
    assert why in said and bool(said) == bool(why), said
