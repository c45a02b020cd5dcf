"""Environments for TRL's `GRPOTrainer(environment_factory=...)`; nothing of TRL is imported.

    GRPOTrainer(..., environment_factory=PatchEnv, reward_funcs=[rewards])          # grades a batch at once
    AsyncGRPOTrainer(..., environment_factory=GradedPatchEnv)                       # each rollout when it is complete

Each row needs the column `instance_id`; the instance's dialect must be `tool_calls`. TRL offers the public methods to
the policy as tools, with their docstrings as descriptions, and runs one call after the other: each call is a turn.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from sandbox_client.background import background
from sandbox_client.errors import SandboxError, SettingsError
from sandbox_client.rollouts import Rollout, service_url

_LOGGER = logging.getLogger(__name__)
_T = TypeVar("_T")
_OVER = "The interaction is over."
_FAILED = "The sandbox failed; nothing can run in it any more."


class _Env:
    """Runs one rollout after the other, each in its own session. If the service fails, the rollout has no reward."""

    def __init__(self, url: str | None = None, run: str | None = None) -> None:
        """`url` None: SANDBOX_URL; `run` None: SANDBOX_RUN. To set them here, give TRL a `functools.partial`."""
        self._of = (url, run)
        self._rollout: Rollout | None = None
        self._fault = ""
        self._over = False

    def reset(self, instance_id: str = "", **row: Any) -> str | None:
        """End the previous rollout's session and start one for the next rollout.

        If the start fails, this rollout has no reward, and the batch continues. Raises SettingsError: no instance_id.
        """
        if not instance_id:
            raise SettingsError("the data set's rows need the column instance_id")
        url, run = service_url(self._of[0]), self._of[1]
        former, self._rollout = self._rollout, None
        self._fault, self._over = "", False

        async def started() -> Rollout:
            if former is not None:
                await former.end()
            return await Rollout.start(background().client(url, None, run), instance_id)

        try:
            self._rollout = _begin(started).result()
        except SandboxError as error:
            self._failed(error)
        return None

    def _call(self, name: str, **arguments: Any) -> str:
        """Run one tool call and return its result."""
        rollout = self._rollout
        if rollout is None or self._fault:
            return _FAILED
        if self._over:
            return _OVER
        given = {key: value for key, value in arguments.items() if value is not None}
        call = {"id": uuid.uuid4().hex, "name": name, "arguments": json.dumps(given)}
        try:
            reply = _begin(lambda: rollout.turn("", [call])).result()
        except SandboxError as error:
            self._failed(error)
            return _FAILED
        self._over = reply.over
        return reply.texts[0]

    def _grading(self) -> Future[float] | None:
        rollout = self._rollout
        if rollout is None or self._fault:
            return None

        async def graded() -> float:
            return (await rollout.grade()).reward

        return _begin(graded)

    def _graded(self, grading: Future[float] | None) -> float | None:
        try:
            return None if grading is None else grading.result()
        except SandboxError as error:
            self._failed(error)
            return None

    def _failed(self, error: SandboxError) -> None:
        self._fault = str(error) or type(error).__name__
        _LOGGER.error("this rollout has no reward: %s", self._fault)


class PatchEnv(_Env):
    """For tasks that ask for a patch."""

    def bash(self, command: str, timeout: float | None = None) -> str:
        """Run a command in a fresh bash at the repository.

        Args:
            command: The command.
            timeout: Seconds until it is killed.

        Returns:
            Its output, and its exit code if that is not 0.
        """
        return self._call("bash", command=command, timeout=timeout)

    def str_replace_editor(
        self,
        command: str,
        path: str,
        file_text: str | None = None,
        old_str: str | None = None,
        new_str: str | None = None,
        insert_line: int | None = None,
    ) -> str:
        """View, create and edit files.

        Args:
            command: One of view, create, str_replace, insert, undo_edit.
            path: Absolute path of the file or folder.
            file_text: For create, the file's content.
            old_str: For str_replace, a text that occurs exactly once.
            new_str: For str_replace and insert, the new text.
            insert_line: For insert, the line after which it goes.

        Returns:
            What was found or done.
        """
        texts = {"file_text": file_text, "old_str": old_str, "new_str": new_str, "insert_line": insert_line}
        return self._call("str_replace_editor", command=command, path=path, **texts)

    def submit(self) -> str:
        """End your work; the patch is taken from the working tree.

        Returns:
            That the interaction is over.
        """
        return self._call("submit")


class SearchEnv(_Env):
    """For code search."""

    def bash(self, command: str, timeout: float | None = None) -> str:
        """Run a command in a fresh bash at the repository.

        Args:
            command: The command.
            timeout: Seconds until it is killed.

        Returns:
            Its output, and its exit code if that is not 0.
        """
        return self._call("bash", command=command, timeout=timeout)

    def localization_finish(self, files: list[str]) -> str:
        """Give your answer: the places that the change must touch.

        Args:
            files: One place each: a path, or a path, a colon and the dotted name of a class or function in it.

        Returns:
            That the answer is recorded.
        """
        return self._call("localization_finish", locations=files)  # unchecked: the service parses what the policy gave


class GradedPatchEnv(PatchEnv):
    """A PatchEnv that gives TRL the reward of each completed rollout."""

    def get_reward(self) -> float | None:
        """The session's reward; None if it is masked: TRL then leaves the rollout out of the loss."""
        return self._graded(self._grading())


class GradedSearchEnv(SearchEnv):
    """A SearchEnv that gives TRL the reward of each completed rollout."""

    def get_reward(self) -> float | None:
        """See `GradedPatchEnv.get_reward`."""
        return self._graded(self._grading())


def rewards(environments: Sequence[_Env], **others: Any) -> list[float | None]:
    """Grade a batch's sessions concurrently. A masked reward is None, which TRL leaves out of the loss."""
    gradings = [one._grading() for one in environments]
    return [one._graded(grading) for one, grading in zip(environments, gradings, strict=True)]


def _begin(work: Callable[[], Awaitable[_T]]) -> Future[_T]:
    async def done() -> _T:
        return await work()

    return background().submit(done())
