"""The fix is not in the repository that a session gets: nothing is later than HEAD."""

import pytest

from .serving import Server, docker

LATER = """
cd "$1"
git() { command git -c safe.directory='*' "$@"; }
comm -13 <({ git rev-list --objects HEAD | cut -d' ' -f1; git ls-files -s | cut -d' ' -f2;
             git for-each-ref --format='%(objectname)' refs/tags; } | sort -u) \
         <(git cat-file --batch-all-objects --batch-check='%(objectname)' | sort -u)
git fsck --unreachable --no-reflogs --full 2>/dev/null | grep unreachable
git log --all --format=%H | grep -vxFf <(git rev-list HEAD)
git remote
git reflog --all
git stash list
true
"""


@pytest.mark.parametrize("sample", ["intervals", "ledger", "patience", "swatch", "tarif", "timespan"])
def test_nothing_is_later_than_head(live: Server, sample_instances: dict[str, dict], sample: str) -> None:
    """A policy reads the fix out of the repository."""
    sid = live.begin(sample_instances[sample]["instance_id"])
    container = live.container(sid)
    command = ("bash", "-c", LATER, "later", "/testbed")
    image = f"sandbox-samples/{sample}:latest"
    told = docker("run", "--rm", "--network=none", image, *command)
    assert told.strip(), "the image itself holds nothing later, so this shows nothing"
    assert docker("exec", container, *command).strip() == ""
    assert docker("exec", container, "git", "-C", "/testbed", "log", "-1", "--format=%s").strip()
    if sample == "swatch":  # its version is the text "2": a trainer's prompt names the folder without `.0`
        for name in ("samples__swatch__2", "samples__swatch__2.0"):
            assert "done" in live.run(sid, f"cd /workspace/{name} && git status > /dev/null && echo done")
