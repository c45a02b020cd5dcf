"""The samples are what they claim to be, shown with plain docker and no server."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/instance.json"))


def in_image(image: str, script: str) -> subprocess.CompletedProcess[str]:
    command = [
        "docker",
        "run",
        "--rm",
        "-i",
        "--network",
        "none",
        "--label",
        "sandbox.samples.test=1",
        image,
        "bash",
        "-s",
    ]
    return subprocess.run(command, input=script, capture_output=True, text=True, timeout=120, check=False)


def test_instances_jsonl_is_current():
    """A change of a sample that was not followed by `make images` would leave a stale catalogue behind."""
    before = (EXAMPLES / "instances.jsonl").read_text()
    subprocess.run([sys.executable, EXAMPLES / "build.py", "--rows-only"], check=True)
    assert (EXAMPLES / "instances.jsonl").read_text() == before


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("answer", ["gold", "wrong", "nothing"])
def test_each_answer_fares_as_it_should(sample_images, sample_instances, name, answer):
    """A gold patch that fails, or a wrong one that passes, would make every verdict on the samples meaningless."""
    row = sample_instances[name]
    patches = [] if answer == "nothing" else [EXAMPLES / name / f"{answer}.patch"]
    patches.append(EXAMPLES / name / "test.patch")
    script = "".join(f"git apply - <<'END_OF_PATCH' || exit 99\n{patch.read_text()}END_OF_PATCH\n" for patch in patches)
    ran = in_image(sample_images[name], script + (row.get("test_cmd") or row["grader"]["command"]) + " 2>&1")
    assert ran.returncode == (0 if answer == "gold" else 1), ran.stdout
    if "test_cmd" in row:
        passed = {line.split()[1] for line in ran.stdout.splitlines() if line.startswith("PASSED ")}
        fail_to_pass, pass_to_pass = (set(json.loads(row[key])) for key in ("FAIL_TO_PASS", "PASS_TO_PASS"))
        assert passed & fail_to_pass == (fail_to_pass if answer == "gold" else set())
        assert answer == "wrong" or passed >= pass_to_pass


@pytest.mark.parametrize("name", NAMES)
def test_the_image_hides_the_fix_in_its_history(sample_images, sample_instances, name):
    """An image without later history would let a history scrub that does nothing pass its tests."""
    ran = in_image(
        sample_images[name],
        "git status --porcelain; echo parent=$(git rev-parse HEAD~1) remotes=$(git remote | wc -l)"
        " later=$(git rev-list --all --reflog --not HEAD | wc -l) stash=$(git stash list | wc -l)"
        " tags=$(git tag | wc -l) lost=$(git fsck --unreachable --no-reflogs 2>/dev/null | grep -c commit)",
    )
    base = sample_instances[name]["base_commit"]
    assert ran.stdout.strip() == f"parent={base} remotes=1 later=6 stash=1 tags=1 lost=1"
