"""What somebody sees who does not know the command line yet."""

import asyncio
import importlib
import shlex

import click
import pytest
import typer

from sandbox_server.cli import VERBS, doctor
from sandbox_server.settings import Settings


def commands(name: str, command: click.Command) -> dict[str, click.Command]:
    """Every command below this one that runs something, by its words."""
    if not hasattr(command, "commands"):
        return {name: command}
    return {
        word: leaf for verb, sub in command.commands.items() for word, leaf in commands(f"{name} {verb}", sub).items()
    }


@pytest.mark.parametrize("verb", VERBS)
def test_each_help_has_an_example_that_works(verb: str) -> None:
    """A new command has no example, or an option of an example was renamed."""
    app = importlib.import_module(f"sandbox_server.cli.{verb.replace('-', '_')}").app
    for words, command in commands(verb, typer.main.get_command(app)).items():
        example = shlex.split((command.epilog or "").removeprefix("Example: sandbox-server "))
        assert " ".join(example[: len(words.split())]) == words
        with command.make_context(words, example[len(words.split()) :]) as context:
            assert context.command.help


def test_doctor_names_a_misspelled_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """SANDBOX_COMAND_TIMEOUT_S=30 does nothing, and nothing says so."""
    monkeypatch.setenv("SANDBOX_COMAND_TIMEOUT_S", "30")
    monkeypatch.setenv("SANDBOX_URL", "http://localhost:5000")  # the client's
    told = asyncio.run(doctor._settings(Settings()))
    assert "is SANDBOX_COMMAND_TIMEOUT_S meant?" in told and "SANDBOX_URL" not in told


def test_doctor_names_a_setting_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator's file goes on to set what nothing reads, and nothing says so."""
    monkeypatch.setenv("SANDBOX_FORWARD_TIMEOUT_S", "900")
    told = asyncio.run(doctor._settings(Settings()))
    assert "SANDBOX_FORWARD_TIMEOUT_S has no effect any more: it follows from" in told and "meant" not in told


def test_another_node_may_take_as_long_as_its_own_limits() -> None:
    """With SANDBOX_START_TIMEOUT_S=600 a forwarded start was cut off after 420 s."""
    assert Settings().forward_timeout_s == 420
    assert Settings(start_timeout_s=600).forward_timeout_s > 600
    assert Settings(reward_wait_s=900).forward_timeout_s > 900


def test_doctor_counts_short_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses are not slowed down, so a key is as safe as it is long; the name before it does not count."""
    monkeypatch.setenv("SANDBOX_API_KEYS", f"0123456789abcdef,a-name-of-19-letters=guess-me,bob={'f' * 16}==")
    monkeypatch.setenv("SANDBOX_VIEW_KEYS", "looks")
    assert "; 2 API keys have under 16 characters" in asyncio.run(doctor._settings(Settings()))
