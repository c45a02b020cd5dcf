"""The dialects `code` and `bash`, and what every dialect does to content first."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.actions import registry
from sandbox_server.actions.base import Call, Say
from sandbox_server.actions.content import fenced_blocks, strip_tail
from sandbox_server.actions.dialects import bash, code

UPSTREAM_TAIL = re.compile(r"(\s|<\|[a-z_]+\|>|</s>)+$")
TAILS = st.lists(
    st.sampled_from([" ", "\n", "\u00a0", "<|im_end|>", "</s>", "<|A|>", "<||>", "|>", "<|", "a", "_", "<", "s>"])
)


@given(TAILS.map("".join))
def test_the_tail_is_what_the_protocols_expression_strips(content):
    """Special tokens stay, or the policy's own text goes."""
    assert strip_tail(content) == UPSTREAM_TAIL.sub("", content)


@pytest.mark.parametrize(
    ("content", "source"),
    [
        ("def solve():\n    pass", "def solve():\n    pass"),
        ("x = 1\n<|im_end|>", "x = 1\n"),
        ("x = 1\n\n</s>\n", "x = 1\n\n"),
        ("```python\nx = 1\n```<|im_end|>", "x = 1\n"),
        ("Here it is:\n```\nx = 1\n```\nDone.", "x = 1\n"),
        ("```py\na\n```\n```py\nb\n```", "```py\na\n```\n```py\nb\n```"),
        ("```python\nnever closed", "```python\nnever closed"),
        (
            'def f():\n    """\n    ```\n    f()\n    ```\n    """\n',
            'def f():\n    """\n    ```\n    f()\n    ```\n    """\n',
        ),
        ("", ""),
        ("bad \ud800", "bad \ufffd"),
    ],
)
def test_code_takes_the_whole_content_or_its_only_block(content, source):
    """The file that is tested is not the one the policy wrote."""
    assert code.DIALECT.parse(content, talk_turns=0) == Call("code", {"source": source})


@pytest.mark.parametrize("fence", ["```bash", "```sh", "```", "``` bash "])
def test_bash_runs_its_only_block(fence):
    """A usual way to open a block is not seen."""
    content = f"First I look.\n\n{fence}\ncd /x && ls\n\npwd\n```\nThat is all.<|im_end|>"
    assert bash.DIALECT.parse(content, talk_turns=0) == Call("execute_bash", {"command": "cd /x && ls\n\npwd"})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("only words", "no_call"),
        ("```python\nprint()\n```", "no_call"),
        ("```bash\nls", "no_call"),
        ("x ```bash\nls\n```", "no_call"),
        ("```bash\nls\n```\n```sh\npwd\n```", "many_calls"),
    ],
)
def test_bash_says_what_to_do_with_any_other_number_of_blocks(content, said):
    """Commands run that were not clearly meant, or the policy is left without a hint."""
    answer = bash.DIALECT.parse(content, talk_turns=0)
    assert isinstance(answer, Say)
    assert (answer.code, answer.is_talk) == (said, said == "no_call")
    assert "```bash" in answer.text


def test_an_empty_block_is_an_empty_command():
    """Polling is impossible in this dialect."""
    assert bash.DIALECT.parse("```bash\n```", talk_turns=0) == Call("execute_bash", {"command": ""})


FENCES = st.lists(st.sampled_from(["```", "```bash", "\n", "\n```", "\n```\n", "x", " ", "```sh\n", "\0", "\ud800"]))


@pytest.mark.parametrize("name", ["bash", "code"])
@given(content=FENCES.map("".join) | st.text())
def test_no_input_raises(name, content):
    """A policy's text ends the request with an exception."""
    registry.dialect(name).parse(content, talk_turns=0)


@given(st.lists(st.tuples(st.sampled_from(["", "bash", "python"]), st.text("ab \n`", max_size=20)), max_size=4))
def test_blocks_come_back_as_they_were_written(blocks):
    """A block's text changes, or one block swallows the next."""
    blocks = [(language, text.replace("```", "") + "\n") for language, text in blocks]
    content = "\n".join(f"prose\n```{language}\n{text}```" for language, text in blocks)
    assert fenced_blocks(content) == blocks


def test_the_registry_knows_every_file_and_nothing_else():
    """A dialect or tool is missing at start-up, or a misspelt setting passes."""
    assert set(registry.dialects()) == {"openhands_xml", "code", "bash", "tool_calls"}
    assert set(registry.tools()) == {"execute_bash", "str_replace_editor", "finish", "code", "bash", "calls"}
    profiles = {name: registry.dialect(name).default_profile for name in registry.dialects()}
    plain = dict.fromkeys(("code", "bash", "tool_calls"), "plain")
    assert profiles == {"openhands_xml": "openhands-0.17", **plain}
    for name, one in registry.dialects().items():
        assert one.name == name
    for profile in profiles.values():
        assert registry.profile(profile) == profile
    with pytest.raises(ValueError, match="there are bash, code, openhands_xml, tool_calls"):
        registry.dialect("openhands")
    with pytest.raises(ValueError, match=re.escape("openhands-0.17")):
        registry.profile("openhands")
