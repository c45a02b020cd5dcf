"""The `sandbox-server` command. Each verb is a module of this package with a Typer `app`; VERBS lists them.

Only the requested verb's module is imported, so that `--help` and `hash` answer at once.
"""

import importlib
import sys
from typing import Annotated

import typer

from sandbox_server import __version__
from sandbox_server.errors import ServiceError

VERBS = {
    "serve": "Serve until SIGTERM or SIGINT.",
    "demo": "Run the samples through the four endpoints.",
    "demo-search": "Play code-search rollouts and check their rewards.",
    "doctor": "Check everything that a server needs.",
    "instances": "Import, list and show task instances.",
    "dataset": "Write data sets for code search, or the catalogue for veRL.",
    "hash": "Print the instance_hash of an instance id.",
    "sessions": "List, show, follow, open and close the running server's sessions.",
    "top": "Show what is wrong in one word, verdicts, wall time and nodes, live.",
    "export": "Write a run's sessions as JSON Lines, or one session as a page.",
    "nodes": "List the nodes that share this server's Redis.",
    "drain": "Take a node out of service without losing anything.",
    "images": "Prepare and prune the images that sessions start from.",
    "rewards": "List the rewards of code search, or check a composition.",
    "settings": "Print the current settings, or the reference of all.",
    "gc": "Remove what a permanently stopped server left here.",
}
"""Verb -> its line in `--help`; the module has the same name, with _ instead of -."""


def main() -> None:
    """Run the command line. Exit code 1 with one line for an error, 2 for wrong usage."""
    root = typer.Typer(
        help="Sandboxes and grading over HTTP for RL training of software-engineering agents.",
        epilog="Begin with: sandbox-server doctor; help on one command: sandbox-server COMMAND --help",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    root.callback()(_root)
    asked = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "")
    for verb, help_text in VERBS.items():
        if verb == asked:
            _add(root, verb, importlib.import_module(f"{__name__}.{verb.replace('-', '_')}").app)
        else:
            root.command(verb, help=help_text)(lambda: None)  # only its line in `--help` is needed
    try:
        root()
    except ServiceError as error:
        typer.echo(f"error: {error.detail}", err=True)
        sys.exit(1)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"sandbox-server {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before a verb."""


def _add(root: typer.Typer, verb: str, app: typer.Typer) -> None:
    """Add a verb's module: its unnamed command is the verb itself, named ones are the verb's subcommands."""
    unnamed = [command for command in app.registered_commands if command.name is None]
    for command in unnamed:
        command.name = verb
        root.registered_commands.append(command)
    if not unnamed:
        root.add_typer(app, name=verb, help=VERBS[verb])
