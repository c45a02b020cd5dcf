"""Grader for Harbor's tasks: `/tests/test.sh` runs in a fresh container and writes a reward under /logs/verifier."""

import asyncio
import json
import math
import posixpath
from collections.abc import Callable, Mapping, Sequence
from shlex import quote

from sandbox_server.catalogue.harbor.archives import Folder
from sandbox_server.catalogue.instance import HarborGrader, TaskInstance
from sandbox_server.grading.base import CleanSandbox, Grader, Judging, TestRun
from sandbox_server.grading.exit_code import ByExitCode, broken_off, test_run
from sandbox_server.grading.supervised import Plan, supervise, unplaced_result, with_absolute_paths
from sandbox_server.sandbox.base import Sandbox
from sandbox_server.verdicts import RewardValue, Score, VerdictName

_LOG_BYTES = 1 << 20
_REWARD_BYTES = 1 << 16
_JSON, _TEXT = "/logs/verifier/reward.json", "/logs/verifier/reward.txt"
_MAIN = "reward"
_TESTS = "/tests/test.sh"
_SETUP = f"rm -rf -- {_JSON} {_TEXT}"


class Harbor(ByExitCode):
    """Resolved if the reward is at least 1.0; what a session earns is the reward itself."""

    async def run(
        self,
        instance: TaskInstance,
        sandbox: Sandbox,
        *,
        timeout_s: float,
        altered: Mapping[str, bytes] | None = None,
        clean: CleanSandbox | None = None,
    ) -> TestRun:
        """See `Grader.run`. Like Harbor, it ignores the exit code of the tests and prefers reward.json.

        Unlike Harbor, it reads only one reward file if the tests' text names just that one; see `named`.
        """
        grader = instance.grader
        assert isinstance(grader, HarborGrader)  # the registry chose by kind
        run = await supervise(
            sandbox,
            Plan(_as(grader.user), _SETUP, with_absolute_paths("/tests", altered)),
            timeout_s=timeout_s,
            cwd=grader.workdir or instance.sandbox.workdir,
            env={"HOME": "/root", **grader.env},
            keep_bytes=_LOG_BYTES,
        )
        if run.unplaced:
            return unplaced_result(run)
        if (broken := broken_off(run, "tests", timeout_s)) is not None:
            return test_run(run, *broken)
        try:
            score = scored(await _rewards(sandbox, await asyncio.to_thread(named, grader.tests)))
        except ValueError as error:
            return test_run(run, VerdictName.NO_RESULTS, f"the tests exited with {run.exit_code}, and {error}")
        name = VerdictName.RESOLVED if score.total >= 1 else VerdictName.UNRESOLVED
        return test_run(run, name, f"the tests gave a reward of {score.total:g}", score)

    async def test_files(self, instance: TaskInstance, sandbox: Sandbox, *, timeout_s: float) -> Mapping[str, bytes]:
        """Empty: no false tests can be made from scripts of any kind."""
        return {}


def _as(user: str) -> str:
    """Shell text that runs the tests as this user."""
    if not user:
        return _TESTS
    if user.isdecimal():
        return f"setpriv --reuid={user} --regid={user} --clear-groups -- {_TESTS}"
    return f"runuser -u {quote(user)} -- {_TESTS}"


def named(tests: str) -> tuple[str, ...]:
    """The reward files to look for, in this order. `tests`: the packed folder of the tests.

    If the tests' files name only one of the two, only that one is looked for: the tests did not write the other.
    """
    texts = Folder(tests).contents()
    found = [path for path in (_JSON, _TEXT) if any(posixpath.basename(path).encode() in text for text in texts)]
    return tuple(found) or (_JSON, _TEXT)


async def _rewards(sandbox: Sandbox, paths: Sequence[str]) -> dict[str, float]:
    """The rewards by name. Raises ValueError: there are none, or they cannot be read."""
    for path in paths:
        try:
            text = (await sandbox.read_file(path, max_bytes=_REWARD_BYTES)).decode()
        except FileNotFoundError:
            continue
        except (OSError, OverflowError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} cannot be read: {error}") from None
        return rewards_of(text, path)
    raise ValueError(f"wrote no {' or '.join(paths)}")


def rewards_of(text: str, path: str = _TEXT) -> dict[str, float]:
    """Parse the text of a reward file: a finite number, or in reward.json an object of finite numbers.

    Raises:
        ValueError: it is neither.
    """
    try:
        said = json.loads(text) if path.endswith(".json") else float(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{path} holds {text.strip()[:60]!r}") from None
    values = said if isinstance(said, dict) else {_MAIN: said}
    try:
        numbers = {str(name): float(value) for name, value in values.items() if isinstance(value, int | float)}
    except OverflowError:  # an integer of more than 308 digits
        numbers = {}
    if not values or len(numbers) < len(values) or not all(map(math.isfinite, numbers.values())):
        raise ValueError(f"{path} holds {text.strip()[:60]!r}, which is not made of finite numbers")
    return numbers


def scored(rewards: Mapping[str, float]) -> Score:
    """The total is `reward` if it is there, else the mean of all."""
    weights = {_MAIN: 1.0} if _MAIN in rewards else dict.fromkeys(rewards, 1 / len(rewards))
    items = tuple(RewardValue(name, value, weights.get(name, 0.0)) for name, value in rewards.items())
    return Score(math.fsum(item.value * item.weight for item in items), items, None)


GRADER: Callable[[Judging], Grader] = Harbor
