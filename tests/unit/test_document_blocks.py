"""Every block of code in the documents is what it says it is, and what it prints is compared with the real thing."""

import ast
import importlib
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
import yaml

from sandbox_server.cli import VERBS
from tests.documents import PAGES, Block, blocks, learn, play, typed

LIVE = Path(__file__).parents[1] / "live"
UNSEEN = {
    ("README.md", "# sandbox-server"): "the demo of six samples; test_readmes_demo_has_the_columns_of_the_demo",
    ("docs/architecture.md", "## A rollout"): "a picture",
    ("docs/architecture.md", "## Rooms"): "the layers; test_docs.py compares them with their contract",
    ("docs/dataset.md", "# Data sets for code search"): "needs SWE-Gym's rows and clones of its repositories",
    ("docs/deployment.md", "## Many hosts: Docker Swarm"): "of a trial with two hosts; tests/test_swarm.py has one",
    ("docs/load.md", "## When the engine's disk fills up"): "lists images of other projects too",
    ("docs/seeing.md", "## In the terminal"): "commands, whose options are tested here",
    ("docs/slime.md", "# slime"): "slime's own recipe, for minutes; test_slime.py runs its parts",
    ("docs/slime.md", "## Or by our own client"): "the same",
}
"""(page, heading) of blocks with output that no test compares as it stands -> why."""


def _json(text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        json.loads("{" + text + "}")  # a field and its value


PARSERS: dict[str, Callable[[str], object]] = {
    "sh": lambda text: subprocess.run(["bash", "-n"], input=text, text=True, check=True, capture_output=True),
    "python": lambda text: compile(text, "block", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT),
    "json": _json,
    "yaml": yaml.safe_load,
    "toml": tomllib.loads,
    "console": lambda text: next(iter(typed(text))),
    "text": str,
}


@pytest.mark.parametrize("page", PAGES)
def test_each_block_is_of_its_language(page: str) -> None:
    """A reader pastes a command with an open quote, or a configuration that does not parse."""
    for block in blocks(page):
        assert block.language in PARSERS, f"{page}:{block.line}: ```{block.language}"
        try:
            PARSERS[block.language](block.text)
        except Exception as error:
            raise AssertionError(f"{page}:{block.line}: {error}") from error


def compared() -> Iterator[tuple[str, str]]:
    """(page, beginning of a heading) that tests ask `blocks` for."""
    for path in LIVE.glob("test_*.py"):
        yield from re.findall(r'"((?:\w+/)?\w[\w-]*\.md)", "(#+ [^"]+)"', path.read_text())


def test_each_output_is_compared_with_the_real_one() -> None:
    """A document goes on to print what the service printed a year ago."""
    places = set(compared())
    printed = {
        (page, block.heading) for page in PAGES for block in blocks(page) if block.language in ("console", "text")
    }
    unseen = {
        (page, heading)
        for page, heading in printed
        if not any(page == other and heading.startswith(begin) for other, begin in places)
    }
    assert unseen == set(UNSEEN)


def options(words: list[str]) -> tuple[str, set[str]]:
    """The command that `words` name (without `sandbox-server`), and its options."""
    verb, *others = words
    assert verb in VERBS, verb
    command = typer.main.get_command(importlib.import_module(f"sandbox_server.cli.{verb.replace('-', '_')}").app)
    name = verb
    while hasattr(command, "commands"):
        word = others.pop(0)
        assert word in command.commands, f"{name} {word}"
        name, command = f"{name} {word}", command.commands[word]
    return name, {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("page", PAGES)
def test_each_command_has_the_options_that_are_shown(page: str) -> None:
    """A reader types an option that was renamed, or a subcommand that is gone."""
    for block in blocks(page):
        for line in block.text.replace("\\\n", "").splitlines():
            found = re.match(r"(?:\$ )?(?:[A-Z0-9_]+=\S+ )*(?:\.venv/bin/)?sandbox-server ([a-z].*)", line)
            if found is None:
                continue
            command = re.split(r"  |&&|;", found[1])[0]
            name, known = options(shlex.split(command, comments=True))
            given = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", command))
            assert given <= known | {"--help"}, f"{page}:{block.line}: {name} has no {given - known}"


def test_readmes_demo_has_the_columns_of_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    """The demo prints a column that its picture in README.md lacks."""
    demo = importlib.import_module("sandbox_server.cli.demo")
    (picture,) = [block.text for block in blocks("README.md", "# sandbox-server") if block.language == "text"]
    sample = demo.Sample(Path(), "samples__ledger-12", "Splitting a bill loses cents", None)
    tests = {"f2p_count": 5, "f2p_total": 5, "p2p_count": 14, "p2p_total": 14}
    gold = demo.Rollout(
        sample,
        "gold",
        ["looked around", "read", "wrote the patch", "git apply", "showed the diff"],
        start_s=0.32,
        actions_s=[0.0692] * 5,
        postprocess_s=1.19,
        reward_s=11.69,
        reply={"verdict": "resolved", "reward": 1.0, **tests},
    )
    demo.show(sample, [gold])
    assert picture.startswith(capsys.readouterr().out.lstrip("\n"))


def test_a_transcript_is_compared() -> None:
    """The harness accepts whatever comes."""
    said = iter(['{"sid": "1234567890123456"}', "0.25 s, 1234567890123456 is\n at abcdef0", "other"])
    page = (
        '$ start  # a word\n{"sid": "9999999999999999"}\n'
        "$ look 9999999999999999 '\n'\n3.0 s, 9999999999999999 is at 1234567\n"
    )
    lines: list[str] = []

    def heard(line: str) -> str:
        lines.append(line)
        return next(said)

    assert play(_console(page), heard) == {"9999999999999999": "1234567890123456"}
    assert lines == ["start", "look 1234567890123456 '\n'"]
    with pytest.raises(AssertionError, match="this was said:\nother"):
        play(_console("$ start\nanother\n"), heard)
    with pytest.raises(KeyError, match="after lunch"):
        play(_console("$ start  # after lunch\nsomething\n"), heard)
    assert learn("a ... d", "a b\nc d", {}) == {}


def _console(text: str) -> Block:
    return Block("page.md", "# Heading", 1, "console", text)
