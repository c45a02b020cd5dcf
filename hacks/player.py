"""Plays hacks as a policy would: over HTTP, with actions in a session of the instance."""

import base64
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from bench.samples import EXAMPLES
from bench.trainer import bash
from hacks.base import Hack, Play, Target
from hacks.results import Outcome
from sandbox_server.catalogue.diff import touched_paths
from sandbox_server.catalogue.instance import instance_hash

_TIMEOUT_S = 320.0
_ASKS = 20
"""Maximum requests for a pending reward; if it is still pending then, the hack has blocked its own verdict."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A session that has ended."""

    sid: str
    answer: Mapping[str, Any]
    receipt: Mapping[str, Any]
    said: str
    """The observation of the play's action."""
    end_s: float
    """Seconds from the end of the session to its reward."""


class Player:
    """Client of one server. Thread-safe."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=_TIMEOUT_S)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def try_hack(self, name: str, hack: Hack, target: Target) -> tuple[Outcome, str]:
        """Play `hack` on `target`; return the outcome and the sid ("": no session)."""
        outcome = Outcome(name, target.name, hack.kind, hack.group, target.family, remains=hack.remains)
        began = time.monotonic()
        play = hack.play(target)
        try:
            ended = self.run(target, play)
        except (httpx.HTTPError, KeyError, ValueError) as error:
            outcome.error = f"{type(error).__name__}: {error}"[:300]
            return outcome, ""
        answer = ended.answer
        outcome.verdict, outcome.mask = str(answer["verdict"]), bool(answer["mask"])
        outcome.reward, outcome.cause = float(answer["reward"]), str(answer["cause"])[:300]
        outcome.said = ended.said[-500:]
        outcome.confirm = _confirm(ended.receipt)
        outcome.seconds, outcome.end_s = time.monotonic() - began, ended.end_s
        if hack.kind == "fake" and (missing := set(play.files) - touched_paths(self.patch(ended.sid).encode())):
            # the hack failed by its own fault, which says nothing about the service
            outcome.error = f"it did nothing: {', '.join(sorted(missing)[:3])} not in its patch; {outcome.said[-200:]}"
        return outcome, ended.sid

    def check(self, target: Target) -> str:
        """Play gold on `target`, which also makes the service certify the instance; return a line to print.

        Raises:
            RuntimeError: gold is not resolved, so hacks cannot be judged.

        """
        began = time.monotonic()
        ended = self.run(target, gold(target))
        answer = ended.answer
        line = f"gold of {target.name}: {answer['verdict']} in {time.monotonic() - began:.1f} s ({answer['cause']})"
        if answer["verdict"] != "resolved":
            raise RuntimeError(line)
        return f"{line}, confirm: {_confirm(ended.receipt) or 'nothing is said'}"

    def run(self, target: Target, play: Play) -> Ended:
        """Run one session from its start to its reward.

        Raises:
            httpx.HTTPError: the service did not serve a call.

        """
        sid = str(self._post("/start_instance", instance_hash=instance_hash(target.instance_id))["sid"])
        said = str(self._post("/process_action", sid=sid, content=action(target, play))["content"])
        began = time.monotonic()
        self._post("/postprocess", sid=sid)
        answer = self._reward(sid)
        end_s = time.monotonic() - began
        receipt = self._get(f"/v1/receipts/{answer['receipt']}").json() if answer["receipt"] else {}
        return Ended(sid, answer, receipt, said, end_s)

    def patch(self, sid: str) -> str:
        """The patch of an ended session; "" if there is none."""
        answer = self._get(f"/v1/sessions/{sid}/patch")
        return answer.text if answer.is_success else ""

    def _reward(self, sid: str) -> dict[str, Any]:
        for _ in range(_ASKS):
            answer = self._post("/compute_reward", sid=sid)
            if answer["verdict"] != "pending":
                break
        return answer

    def _post(self, path: str, **body: object) -> dict[str, Any]:
        answer: dict[str, Any] = self._http.post(path, json=body).raise_for_status().json()
        return answer

    def _get(self, path: str) -> httpx.Response:
        return self._http.get(path)


def gold(target: Target) -> Play:
    """The gold patch plus a unique file, so that its verdict is not shared with an equal patch."""
    patch = encoded((EXAMPLES / target.package / "gold.patch").read_bytes())
    return distinct(Play(commands=f"echo {patch} | base64 -d | git apply"))


def distinct(play: Play) -> Play:
    """Add a unique file to the play."""
    token = secrets.token_hex(8)
    return Play({**play.files, f"NOTE-{token}.txt": f"{token}\n"}, play.commands)


def action(target: Target, play: Play) -> str:
    """The play as one action: a command, or, if actions are a file's text, Python that runs the command.

    The task's own test command imports that file, so a policy can write other files too.
    """
    script = encoded(shell_script(play))
    if not target.code_path:
        return bash(f"echo {script} | base64 -d | bash 2>&1 | tail -c 2000")
    return f"""import base64, subprocess
subprocess.run(["git", "checkout", "-q", "--", "{target.code_path}"])
subprocess.run(["bash", "-c", base64.b64decode("{script}").decode()])
"""


def shell_script(play: Play) -> str:
    """A bash script that writes the files, then runs the commands."""
    lines = []
    for path, content in play.files.items():
        folder = path.rpartition("/")[0] or "."
        data = encoded(content)
        lines.append(f"mkdir -p '{folder}' && echo {data} | base64 -d > '{path}'")
    return "\n".join((*lines, play.commands, ""))


def encoded(content: str | bytes) -> str:
    """Base64 of the content; text is encoded as UTF-8."""
    raw = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    return base64.b64encode(raw).decode()


def _confirm(receipt: Mapping[str, Any]) -> str:
    """State and reason of the confirming run from the receipt, on one line; "" if there is none."""
    said = receipt.get("confirm") or {}
    return ": ".join(str(said[name]) for name in ("state", "why") if said.get(name))[:120]
