"""Opens the grading parts: the queue of this node's gradings, stored rewards, batches, and the grading balancer."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from sandbox_server.app.foundation import Foundation
from sandbox_server.app.grading import grading_of
from sandbox_server.app.scoring import batch_grading_of, drift_of, localizing_of
from sandbox_server.fleet.balancer import BalancerConfig, GradingBalancer
from sandbox_server.grading.grading import code_of_grading
from sandbox_server.grading.queue import GradingQueue
from sandbox_server.grading.registry import load_rewards
from sandbox_server.pool.spending import Spending, SpendingBounds
from sandbox_server.scoring.batch_grading import BatchGrading
from sandbox_server.scoring.localizing import Localizing
from sandbox_server.scoring.receipts import Receipts
from sandbox_server.scoring.rewards import Rewards, Share
from sandbox_server.scoring.session_grading import SessionGrading
from sandbox_server.settings import Settings


@dataclass(frozen=True, slots=True)
class Gradings:
    """The grading parts. Nothing is graded before `balancer.open`."""

    spending: Spending
    queue: GradingQueue
    rewards: Rewards
    localizing: Localizing
    batches: BatchGrading
    balancer: GradingBalancer


@asynccontextmanager
async def open_gradings(settings: Settings, base: Foundation) -> AsyncIterator[Gradings]:
    """Open the grading parts. Raises ValueError: a setting names a reward that does not exist."""
    state, data = base.state, base.data
    await asyncio.to_thread(code_of_grading)  # else the first reward reads these files on the event loop
    async with AsyncExitStack() as stack:
        grading = grading_of(settings, base.runtime, base.database, base.workspaces, base.faults, claims=data.store)
        bounds = SpendingBounds(settings.run_cpu_s, settings.run_grade_s, settings.run_window_s)
        spending = Spending(state.usage, bounds)
        stack.push_async_callback(spending.close)
        queue = GradingQueue(
            grading, data.history, concurrency=settings.gradings, claims=data.store, used=spending.add_grading
        )
        stack.push_async_callback(queue.close)
        if grading.confirming is not None:
            grading.confirming.certifying.go_behind(queue.wait_until_uncrowded)
        localizing = localizing_of(settings, data)
        receipts = Receipts(data.history, load_rewards(), reward=settings.reward, node=settings.node_id)
        rewards = Rewards(
            queue,
            SessionGrading(queue, data.history, localizing, receipts),
            data.history,
            data.instances,
            state.jobs,
            state.signals,
            base.faults,
            Share(settings.node_id, slots=settings.gradings, prefetch=settings.grade_prefetch),
        )
        stack.push_async_callback(rewards.close)
        batches = batch_grading_of(settings, data.instances, queue, localizing, spending.check)
        stack.push_async_callback(batches.close)
        balancer = GradingBalancer(
            state.jobs,
            rewards,
            state.nodes,
            data.store,
            data.history,
            data.instances,
            BalancerConfig(
                node=settings.node_id,
                period_s=settings.node_beat_s,
                recover_period_s=settings.grade_recover_s,
                kept_s=settings.result_ttl_s,
            ),
        )
        if settings.drift_check_s:
            drift = drift_of(base.database, grading, idle=lambda: not queue.count)
            drift_s = settings.drift_check_s * random.uniform(0.5, 1.5)  # so that not all nodes check at once
            await stack.enter_async_context(base.loops.every(drift_s, drift.look, name="drift", at_once=False))
        yield Gradings(spending, queue, rewards, localizing, batches, balancer)
