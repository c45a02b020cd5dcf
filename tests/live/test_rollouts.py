"""Whole rollouts: the recorded observations over HTTP, and eighteen at once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.golden.play import normal, script

from .serving import UNREAD, Server, bash, editor, until

EDITOR_HEAD = "EXECUTION RESULT of [str_replace_editor]:\n"
SAMPLES = ("ledger", "patience", "tarif")


def test_the_recorded_shell(live: Server) -> None:
    """What a policy sees of its shell differs from what it was trained with."""
    sid = live.begin(UNREAD)
    live.run(
        sid, "type -P python || ln -s $(type -P python3) /usr/bin/python; mkdir /workspace/repo; cd /workspace/repo"
    )
    for step in script("bash")[:-1]:  # the last one is a syntax error here and was a timeout there
        reply = live.say(sid, bash(step["input"]))
        assert normal(str(reply["content"])) == normal(step["observation"]), step["input"]
        assert "error" not in reply
    assert live.finish(sid)["state"] == "ended"


def test_the_recorded_editor_and_what_a_policy_gets_wrong(live: Server) -> None:
    """What a policy sees of the editor, or of its own mistakes, differs from what it was trained with."""
    sid = live.begin(UNREAD)
    live.run(sid, r"mkdir -p /workspace/ed/pkg /workspace/ed/.git; printf '\xff\xfe\0' > /workspace/ed/bin")
    recorded_file = True
    for step in script("editor"):
        if any(text != text.strip() for text in step["input"].values() if isinstance(text, str)):
            recorded_file = False
            continue  # this dialect takes the white space around a value away
        if step["input"]["command"] == "nope" or step["input"] == {"command": "view", "path": "/workspace/ed"}:
            continue  # refused by the dialect; listed with `bin`
        content = str(live.say(sid, editor(**step["input"]))["content"])
        says_lines = "lines of the file" in step["observation"] or not step["observation"].startswith("ERROR")
        if recorded_file or not says_lines:
            assert content == EDITOR_HEAD + step["observation"], step["input"]
        assert content.startswith(EDITOR_HEAD)
    tail = "\n[Error occurred in processing last action]"
    wrong = {
        "<function=nope>\n</function>": "Function 'nope' not found in available tools: "
        "['execute_bash', 'finish', 'str_replace_editor']" + tail,
        "<function=execute_bash>\n</function>": "Missing required parameters for function 'execute_bash': {'command'}"
        + tail,
        editor(command="view", path="/", view_range="[1"): "Parameter 'view_range' is expected to be an array." + tail,
        "<function=execute_bash>\n<parameter=cmd>ls</parameter>\n</function>": "Parameter 'cmd' is not allowed for "
        "function 'execute_bash'. Allowed parameters: {'command'}" + tail,
    }
    for content, observation in wrong.items():
        assert live.say(sid, content) == {"content": observation}
    first, second = (str(live.say(sid, "I think about it.")["content"]) for _ in range(2))
    assert first.startswith("Please continue working on the task")
    assert "give up" not in first and "give up" in second
    assert "NUL byte" in str(live.say(sid, bash("echo a\0b"))["content"])
    assert "error" not in live.say(sid, "<function=finish>\n</function>")
    assert live.finish(sid)["state"] == "ended"


def test_eighteen_at_once(serve: Callable[..., Server], sample_instances: dict[str, dict]) -> None:
    """Sessions disturb one another: a wrong verdict, a lost action, a leaked container, an error in the log.

    Two of each sample and verdict, with grading containers made ahead as in a server without settings.
    """
    live = serve(grade_ahead=4)

    def one(number: int) -> str:
        row = sample_instances[SAMPLES[number % 3]]
        sid = live.begin(row["instance_id"])
        for step in range(5):
            assert f"\r\nt{step + number}[Python" in live.run(sid, f"echo t$(({step}+{number})); git status --short")
        if number // 3 % 3 == 0:
            patch = row["patch"]
            assert "exit code 0]" in live.run(sid, f"git apply --binary <<'THE_END'\n{patch.rstrip()}\n\nTHE_END")
        elif number // 3 % 3 == 1:
            live.run(sid, f"echo {number} > note-{number}.txt")
        else:
            live.run(sid, "ls")
        live.finish(sid)
        assert [action["seq"] for action in live.actions(sid)] == list(range(1, 7))
        got = live.reward(int(sid))
        assert got["mask"] is False
        return str(got["verdict"])

    with ThreadPoolExecutor(18) as pool:
        got = list(pool.map(one, range(18)))
    assert got == [("resolved", "unresolved", "empty_patch")[number // 3 % 3] for number in range(18)]
    until(lambda: not live.in_use(), 20, "no container left")
    assert live.complaints() == []


@pytest.mark.parametrize("instance", ["samples__timespan-7", "samples__intervals-3"])
def test_other_graders_and_dialects(live: Server, sample_instances: dict[str, dict], instance: str) -> None:
    """An instance with a script grader or the `code` dialect is only half served."""
    row = next(row for row in sample_instances.values() if row["instance_id"] == instance)
    sid = live.begin(instance)
    if row.get("dialect") == "code":
        assert "1 error" in str(live.say(sid, "def merge(intervals):\n    return []\n")["content"])
    else:
        live.run(sid, f"git apply <<'THE_END'\n{row['gold_patch'].rstrip()}\n\nTHE_END")
    got = live.reward(sid)
    assert (got["verdict"], got["mask"]) == ("unresolved" if row.get("dialect") else "resolved", False)
