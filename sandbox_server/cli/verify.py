"""`sandbox-server instances verify`: checks that the gold patch resolves the task and an empty patch does not."""

import asyncio
import os
import time
from dataclasses import dataclass, replace

import typer

from sandbox_server.app.catalogue import open_catalogue
from sandbox_server.app.engine import open_runtime
from sandbox_server.app.grading import grading_of
from sandbox_server.app.workspaces import captures_of, open_workspaces
from sandbox_server.catalogue.certificate_key import CertificateKey
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.instances import Instances
from sandbox_server.catalogue.localization.truth import RewardItem, Truth
from sandbox_server.cli import configuration
from sandbox_server.cli.oracle import Oracle
from sandbox_server.cli.progress import progress
from sandbox_server.errors import ServiceError
from sandbox_server.grading.altering import gather_or_cancel
from sandbox_server.grading.base import GradeRequest
from sandbox_server.grading.grading import Grading
from sandbox_server.grading.localization.answers import structured_answer
from sandbox_server.grading.localization.base import Events, RewardContext, Turn
from sandbox_server.grading.localization.composition import compose
from sandbox_server.grading.localization.verdict import verdict_of
from sandbox_server.verdicts import Answer, ConfirmState, Verdict

_ALL = 1_000_000
_FILES = RewardItem(fn="file_localization_f1_reward")


@dataclass(frozen=True, slots=True)
class _Found:
    gold: str
    empty: str
    note: str

    @property
    def sound(self) -> bool:
        # no_results: in a compiled language, tests of code that only gold adds do not build on the unpatched tree
        return self.gold == "resolved" and self.empty in ("unresolved", "no_results")


async def verify(ids: list[str], *, jobs: int = 0) -> int:
    """Grade gold and the unpatched tree of each instance, store and print the results; return how many are not sound.

    `ids`: [] for all gradable instances. `jobs`: instances at a time; 0: as many as the node grades at a time.
    """
    settings = configuration.load()
    room = asyncio.Semaphore(jobs or settings.gradings)
    async with (
        open_catalogue(settings) as database,
        open_runtime(settings, guest=f"verify-{os.getpid()}") as runtime,
        open_workspaces(settings, runtime) as workspaces,
    ):
        instances = Instances(database)
        captures = captures_of(settings, runtime)
        timeout_s, begin_s = settings.grade_timeout_s, settings.service_start_s
        oracle = Oracle(runtime, instances, workspaces, captures, timeout_s=timeout_s, begin_s=begin_s)
        grading = grading_of(settings, runtime, database, workspaces)
        try:
            names = ids or [s.instance_id for s in await instances.list(gradable=True, limit=_ALL)]
            if not names:
                raise SystemExit("error: no instance to verify; `sandbox-server instances import FILE` adds some")

            async def one(instance_id: str) -> bool:
                async with room:
                    began = time.monotonic()
                    found = await _verify(grading, oracle, await instances.by_id(instance_id))
                    await instances.mark_verified(instance_id, found.gold, found.empty, time.time())
                bar.print(
                    f"{'ok  ' if found.sound else 'FAIL'}  {instance_id}  gold {found.gold}, empty {found.empty}"
                    f"  {time.monotonic() - began:.1f} s  {found.note}".rstrip()
                )
                bar.ran()
                return found.sound

            with progress("instances", len(names)) as bar:
                unsound = sum(not sound for sound in await gather_or_cancel(*map(one, names)))
        finally:
            await grading.close()
            await captures.close()
    typer.echo(f"{len(names) - unsound} of {len(names)} sound")
    return unsound


async def _verify(grading: Grading, oracle: Oracle, instance: TaskInstance) -> _Found:
    if instance.localizes:
        return _verify_search(instance)
    try:
        patch = (await oracle.solve(instance)).files if instance.carried else instance.gold_patch.encode()
    except ServiceError as e:
        return _Found("infra", "infra", e.detail)
    gold = await grading.grade(GradeRequest(instance=instance, patch=patch, sid=""))
    try:
        untouched = await oracle.untouched(instance)
        empty = await (grading.run_altered(instance, untouched, {}) if untouched else grading.run_unpatched(instance))
    except ServiceError as e:
        return _Found(gold.name, "infra", e.detail)
    found = _Found(gold.name, empty.name, f"gold: {gold.cause}; empty: {empty.cause}")
    return replace(found, note=await _variants(grading, instance, gold)) if found.sound else found


async def _variants(grading: Grading, instance: TaskInstance, gold: Verdict) -> str:
    """How many tests can be altered for the confirming run; computed now, unless gold's confirming run has done so."""
    assert grading.confirming is not None  # set by `grading_of`
    try:
        made = await grading.confirming.certifying.variants(instance, CertificateKey.of(instance, gold.image_digest))
    except ServiceError as e:
        return f"variants: {e.detail}"
    if not made.units:
        return f"confirm: none ({made.why})"
    state = gold.confirm.state if gold.confirm else ""
    known = f"{len(made.tests)} of {len(instance.fail_to_pass)} tests" if made.tests else f"{len(made.units)} tests"
    return f"variants of {known}{f', gold {state}' if state == ConfirmState.CONFIRMED else ''}"


def _verify_search(instance: TaskInstance) -> _Found:
    """Check a code-search task without running it: the truth as answer must resolve it, and no answer must not."""
    assert instance.localization is not None  # set by the instance's own rule
    truth = instance.localization.truth
    if not truth.files:
        return _Found("unanswerable", "unresolved", "there is no file to find")
    try:
        composition = compose(instance.localization.rewards or (_FILES,), name=instance.instance_id)
    except ValueError as error:
        return _Found("infra", "infra", f"its rewards cannot be used: {error}")
    perfect = verdict_of(composition.score(_search(truth, structured_answer(truth.files))), truth)
    silent = verdict_of(composition.score(_search(truth, None)), truth)
    return _Found(perfect.name, "unresolved" if not silent.resolved else silent.name, "code search")


def _search(truth: Truth, answer: Answer | None) -> RewardContext:
    turn = Turn(("bash",), prompt_tokens=1, response_tokens=1)
    return RewardContext(answer, truth, Events((turn, turn)))
