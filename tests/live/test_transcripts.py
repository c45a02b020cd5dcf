"""What the documents show is typed and comes back, on the shared server."""

import json
from collections.abc import Mapping

from tests.conftest import ROOT
from tests.documents import blocks, learn, play

from .reader import shell
from .serving import UNREAD, Server


def test_readme_with_curl(live: Server) -> None:
    """The first rollout that a newcomer tries by hand."""
    (transcript,) = [block for block in blocks("README.md", "## With curl") if block.language == "console"]
    patch = (ROOT / "examples" / "ledger" / "gold.patch").read_text()

    def apply(sids: Mapping[str, str]) -> None:
        (sid,) = sids.values()
        live.run(sid, f"git apply <<'END_OF_PATCH'\n{patch}END_OF_PATCH")

    play(transcript, shell(live), meanwhile={"after examples/ledger/gold.patch was applied": apply})


def test_copies_and_going_back(live: Server) -> None:
    """Copies of a session, its tree, what the first observation of a copy says, and a rollback."""
    copying, _, notice = blocks("docs/forks.md", "# Copies") + blocks("docs/forks.md", "## What a copy has")
    (back,) = blocks("docs/forks.md", "## Going back")
    sid = live.begin(UNREAD)
    for number in range(11):
        live.run(sid, f"echo {number}")
    live.run(sid, "sleep 1000 &")
    sids = play(copying, shell(live), {"2071489127163913": sid})
    copy = sids["5921604407107642"]
    assert learn(f"{notice.text.strip()}...", live.run(copy, "true"), {}) == {}
    play(back, shell(live), {"2071489127163913": sid})
    assert live.session(sid)["undone"] == "8-13"
    for one in sids.values():
        live.finish(one)


def test_the_observation_of_tool_calls(live: Server) -> None:
    """A trainer splits an observation by what the document shows of one."""
    (shown,) = blocks("docs/code-search.md", "## Tool calls")
    sid = live.begin("samples__search-1")

    def turn(*calls: dict[str, object]) -> str:
        texts = [json.dumps({"name": "bash", "arguments": arguments}) for arguments in calls]
        return str(live.say(sid, "".join(f"<tool_call>{text}</tool_call>" for text in texts))["content"])

    turn({"command": "mkdir src && { yes '' | head -n 11; echo needle; } >src/a.py"})
    assert learn(shown.text, turn({"command": "grep -rn needle src /nonexistent"}, {}), {}) == {}
    turn({"command": "rm -r src"})
    live.finish(sid)


def test_commands_without_a_dialect(live: Server) -> None:
    """A trainer that parses tool calls itself sends another body, or reads another answer, than is shown."""
    (batch,) = blocks("docs/code-search.md", "## Commands without a dialect")
    sid = live.begin(UNREAD)
    play(batch, shell(live), {"2071489127163913": sid})
    live.finish(sid)
