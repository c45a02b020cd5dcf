"""The rollouts of the RL step: ten recorded actions each, in the server's dialect and as plain commands."""

from collections.abc import Iterator
from dataclasses import dataclass

from bench.samples import Sample
from bench.trainer import bash, edit

_REPRODUCE = "import sys\n\nprint(sys.version)\nprint(sum(range(1000)))\n"


@dataclass(frozen=True, slots=True)
class Step:
    """One action: the policy's text for our server, and the equivalent command for `docker exec`."""

    content: str
    command: str


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sample of an instance; all patches differ, so no verdict can be shared."""

    sample: Sample
    instance: int
    """Number of the instance in the step; its row is `sample.numbered(instance)`."""
    number: int
    """Number of the rollout in the step; even ones make the gold patch, odd ones the wrong one."""

    @property
    def instance_id(self) -> str:
        return str(self.sample.numbered(self.instance)["instance_id"])

    @property
    def solves(self) -> bool:
        return self.number % 2 == 0

    def steps(self) -> Iterator[Step]:
        """Look, search, read, reproduce, fix, test: the mix of a short agent run."""
        path = self.sample.source
        patch = self.sample.gold if self.solves else self.sample.wrong
        fix = f"git apply - <<'END_OF_PATCH'\n{patch}END_OF_PATCH"
        yield _both("ls -la && git status --short")
        yield _both("git log --oneline | head -n 5 && cat README.md")
        yield _both("grep -rn 'def ' --include='*.py' . | head -n 40")
        yield Step(edit("view", f"/testbed/{path}"), f"cat -n '{path}'")
        yield _both(f"sed -n '1,40p' '{path}'")
        written = f"cat > reproduce.py <<'END_OF_FILE'\n{_REPRODUCE}END_OF_FILE"
        yield Step(edit("create", "/testbed/reproduce.py", file_text=_REPRODUCE), written)
        yield _both("python -B reproduce.py && rm reproduce.py")
        yield _both(fix)
        yield _both(f"sed -i '$a <!-- sample {self.number} -->' README.md && git diff --stat")
        yield _both("(sleep 2 & python -B -m pytest -q -p no:cacheprovider 2>&1 | tail -n 3; wait)")


def rollouts(samples: list[Sample], instances: int, samples_each: int) -> list[Rollout]:
    """`instances` x `samples_each` rollouts, cycling through the samples."""
    return [
        Rollout(samples[instance % len(samples)], instance, instance * samples_each + one)
        for instance in range(instances)
        for one in range(samples_each)
    ]


def _both(command: str) -> Step:
    return Step(bash(command), command)
