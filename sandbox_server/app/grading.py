"""Builds the grading parts, for a server and for a command line beside one."""

import math

from sandbox_server.app.limits import limits_of
from sandbox_server.catalogue.certificates import Certificates
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.instances import Instances
from sandbox_server.grading.assays import Assays
from sandbox_server.grading.attempts import Retries
from sandbox_server.grading.base import Baseline, BaselineSource, Claims, Judging
from sandbox_server.grading.certifying import Certifying
from sandbox_server.grading.confirming import Confirming
from sandbox_server.grading.containers import Bounds, Containers, PrestartLimits, SealedImageSource
from sandbox_server.grading.grading import Grading
from sandbox_server.grading.registry import load_graders, load_rewards
from sandbox_server.grading.rewards.resolved import resolved
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.sandbox.base import Runtime
from sandbox_server.sandbox.faults import Faults
from sandbox_server.settings import Settings


def grading_of(
    settings: Settings,
    runtime: Runtime,
    database: Database,
    workspaces: Workspaces,
    faults: Faults | None = None,
    *,
    claims: Claims | None = None,
) -> Grading:
    """Build the grading by the settings; it pauses while there are `faults`.

    `claims` ensures that only one server makes a certificate.
    """
    cpu_s = settings.judge_timeout_s
    judging = Judging(cpu_s=cpu_s, wall_s=4 * cpu_s, memory_mb=settings.judge_memory_mb)
    # a judge that dies is replaced twice
    bounds = Bounds(tests_s=settings.grade_timeout_s, judge_s=90 + 3 * judging.wall_s)
    containers = Containers(
        runtime,
        limits=limits_of(settings),
        network="bridge" if settings.grade_network else "none",
        cpu_shares=settings.grade_cpu_shares,
        bounds=bounds,
        ahead=PrestartLimits(settings.grade_ahead, boots=max(1, settings.boots // 2)),  # starts use the rest
        faults=faults,
        sealing=SealedImageSource(
            workspaces.sealed, at_once=settings.certifications, with_services=workspaces.with_services
        ),
    )
    grading = Grading(
        containers,
        load_graders(judging),
        _baselines(Instances(database)),
        git_home=(settings.data_dir / "git").absolute(),
        runner_files=settings.runner_files,
        judging=judging,
        retries=Retries(settings.grade_attempts),
        bounds=bounds,
        assays=Assays(Certificates(database)),
        control_kept_s=settings.control_kept_s,
    )
    grading.confirming = _confirming(settings, grading, Certificates(database), claims)
    return grading


def _baselines(instances: Instances) -> BaselineSource:
    async def baseline(instance: TaskInstance) -> Baseline | None:
        verification = await instances.verified(instance.instance_id)
        if verification is None:
            return None
        return Baseline(
            # None instead of False: a run without results may be the fault of the host, so it is repeated
            empty_gives_results=verification.empty in ("resolved", "unresolved") or None,
            gold_gives_results=verification.gold in ("resolved", "unresolved") or None,
            gold_tests_s=math.inf if verification.gold == "timeout" else None,
        )

    return baseline


def _confirming(settings: Settings, grading: Grading, certificates: Certificates, claims: Claims | None) -> Confirming:
    reward = load_rewards().get(settings.reward, resolved)  # `Rewards` reports an unknown one
    certifying = Certifying(
        grading,
        certificates,
        claims,
        budget_s=settings.certify_timeout_s,
        yield_s=settings.certify_yield_s,
        at_once=settings.certifications,
    )
    return Confirming(
        grading,
        certifying,
        mode=settings.confirm,
        earns=lambda instance, verdict: reward(instance, verdict) > 0,
        least_runs=settings.confirm_runs,
        times=settings.confirm_times,
        floor_s=settings.confirm_floor_s,
        parallel=settings.gradings,
        unconfirmed_pays=settings.unconfirmed == "pay",
        reward=settings.reward,
    )
