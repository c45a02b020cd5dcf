"""veRL's generations G1 to G4, from the first start to the reward tensor, over the drop-in."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from serving import Service
from stand import Fault, Stand
from verl_patterns import (
    Scalar,
    Tokenizer,
    bash,
    generation_1,
    generation_2,
    generation_3,
    generation_4,
    rewards,
)

from sandbox_client import instance_hash, swedev_tasks, swedev_utils

GENERATIONS = [generation_1, generation_2, generation_3, generation_4]
Generation = Callable[[list[Any], list[str]], tuple[list[int], list[list[str]]]]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_batch(service: Service, generation: Generation) -> None:
    """An unchanged veRL of this generation could not act, or would not get its rewards."""
    batch = [Scalar(instance_hash(service.instance_id))] * 2
    sids, seen = generation(batch, [bash("echo pattern-$((40+2))"), bash(service.solve)])
    assert len(set(sids)) == 2 and all(0 < sid < 2**53 for sid in sids), sids
    for observations in seen:
        assert len(observations) == 2 and "pattern-42" in observations[0] and "Error" not in observations, observations
    assert rewards([Scalar(sid) for sid in sids]) == [1.0] * 2


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_batch_with_torch(service: Service, generation: Generation) -> None:
    """Real int64 tensors would overflow, or not be taken for numbers."""
    torch = pytest.importorskip("torch", reason="torch is not installed; the same pattern ran with a plain .item()")
    batch = torch.stack([swedev_utils.string_to_hash_tensor(service.instance_id)] * 2)
    sids, _ = generation(list(batch), [bash(service.solve)])
    column = torch.tensor(sids, dtype=torch.int64)
    assert column.tolist() == sids
    scores = torch.zeros([2, 5], dtype=torch.float32)
    for row, score in enumerate(rewards(list(column))):
        scores[row, 4] = score
    assert scores[:, 4].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_what_is_sent(stand: Stand, generation: Generation) -> None:
    """The wire would differ from what the service is built for: the hash is a number, the end comes once."""
    sids, _ = generation([Scalar(2**63 - 1)], [bash("ls")])
    assert stand.bodies("/start_instance") == [{"instance_hash": 2**63 - 1}]
    (action,) = stand.bodies("/process_action")
    expected = bash("ls") if generation is not generation_3 else bash("ls") + "<|im_end|>\n<|im_start|>user\n"
    assert str(action["sid"]) == str(sids[0])
    assert action["content"] == swedev_utils.clear_suffix(expected) or action["content"] == expected
    swedev_utils.initialize_runtime(1)["sid"]  # what was sent before this and awaited has arrived
    expected_ends = 0 if generation is generation_1 else 1
    over = time.monotonic() + 10
    while len(stand.bodies("/postprocess")) < expected_ends and time.monotonic() < over:  # nobody awaits it
        time.sleep(0.02)
    assert len(stand.bodies("/postprocess")) == expected_ends


def test_starts_of_generation_3_run_at_once(stand: Stand) -> None:
    """A start that blocked the main thread would make a batch of 16 take 16 times as long."""
    starts = stand.together["/start_instance"] = threading.Barrier(16)
    sids, _ = generation_3([Scalar(1)] * 16, [])
    assert len(set(sids)) == 16
    assert not starts.broken, f"of 16, at once: {stand.most_at_once}"


def test_actions_are_serial_without_the_concurrency_hook_and_parallel_with_it(stand: Stand) -> None:
    """The awaiting swe_dev_obs would block the loop as the unchanged one does."""

    async def awaiting_turn(action: str, sid: Any) -> str:
        tokenizer = Tokenizer()
        answer = await swedev_tasks.swe_dev_obs(tokenizer.encode(action), sid, tokenizer=tokenizer, index=0)
        assert answer["observation_times"] == 1 and answer["done"] is False
        return tokenizer.decode(answer["ids"], skip_special_tokens=False)

    batch, actions = [Scalar(1)] * 8, [bash("a"), bash("b")]
    stand.delay_s = 0.05
    _, blocked = generation_4(batch, actions)
    assert stand.most_at_once["/process_action"] == 1
    stand.delay_s = 0.0
    turns = stand.together["/process_action"] = threading.Barrier(8)
    _, awaited = generation_4(batch, actions, awaiting_turn)
    assert not turns.broken, f"of 8 actions, at once: {stand.most_at_once}"
    assert blocked == awaited == [actions] * 8


async def test_the_awaiting_observation_ends_on_finish_and_answers_error_as_upstream(
    stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rollout would go on after its finish, or end on one failed request."""
    tokenizer = Tokenizer()
    done = await swedev_tasks.swe_dev_obs(tokenizer.encode("<function=finish>"), "1", tokenizer=tokenizer)
    assert done == {"done": True, "ids": [], "observation_times": 0} and not stand.seen
    stand.fail("/process_action", Fault(422, b'{"code": "malformed_request", "detail": "x"}'))
    failed = await swedev_tasks.swe_dev_obs(tokenizer.encode("ls"), "1", tokenizer=tokenizer)
    assert failed == {"done": False, "ids": tokenizer.encode("Error"), "observation_times": 1}
    assert "Observation - API call failed: HTTP 422" in capsys.readouterr().out


@pytest.mark.parametrize("generation", GENERATIONS[:3])
def test_a_failed_start_is_scored_with_sid_0(
    stand: Stand, generation: Generation, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """G1 to G3 go on without the session; its reward must be loud, for it says nothing about the policy."""
    sids, _ = generation([Scalar(404)], [])
    assert sids == [0]
    assert "Initializing - API call failed: HTTP 404 unknown_instance: no such instance" in capsys.readouterr().out
    assert rewards([Scalar(0)]) == [0.0]
    assert "masked reward (verdict unknown_session" in caplog.text


def test_a_failed_start_ends_the_batch_of_generation_4(stand: Stand) -> None:
    """As upstream: it must not go on with a session that is none."""
    with pytest.raises(TypeError):
        generation_4([Scalar(404)], [])


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_dead_session_does_not_end_the_batch(
    stand: Stand, generation: Generation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One start that fails for good would end a step of hours, with SANDBOX_DEAD_SESSIONS on."""
    monkeypatch.setenv("SANDBOX_DEAD_SESSIONS", "1")
    sids, seen = generation([Scalar(404), Scalar(1)], [bash("solve")])
    assert sids[0] == 0 and sids[1] > 0
    assert "solve" not in seen[0][0] and "solve" in seen[1][0]
    assert all(str(body["sid"]) != "0" for body in stand.bodies("/postprocess"))
    assert rewards([Scalar(sid) for sid in sids]) == [0.0, 1.0]
    assert "no session could be started for 404" in caplog.text and "masked reward" in caplog.text
