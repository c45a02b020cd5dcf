"""`sandbox-server rewards`: lists the rewards of code search (docs/rewards.md), and checks compositions."""

import inspect

import typer
from pydantic.fields import FieldInfo

from sandbox_server.grading.localization.base import LocalizationReward
from sandbox_server.grading.localization.composition import load, rewards, shipped

app = typer.Typer()

_HEAD = """# Rewards of code search

Made by `sandbox-server rewards --markdown` from sandbox_server/grading/localization/rewards/, one file per reward; a
test fails when it is stale. How to compose, choose and request them: [api.md](api.md#code-search).

Each is a pure function of the parsed answer, the truth and the rollout's turns. A turn is one message of the policy,
including the answer; a call is one tool call. The total of a composition is the sum of weight times value. A value is
never a fault of the service: a reward that fails, or leaves its range, gives verdict `infra`, masked.
"""
_COMPOSITIONS = """
## Compositions shipped with the service

| name | range of the total | what |
|---|---|---|
"""


@app.callback(invoke_without_command=True)
def show(
    as_markdown: bool = typer.Option(False, "--markdown", help="The whole reference, as docs/rewards.md."),
    check: str | None = typer.Option(None, metavar="NAME|FILE", help="Check whether this composition is valid."),
) -> None:
    """List the rewards; with --check, print a composition's minimum and maximum, or why it is invalid."""
    if as_markdown:
        typer.echo(markdown(), nl=False)
    elif check is not None:
        try:
            composition = load(check)
        except ValueError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from None
        typer.echo(f"{composition.name}: {_range(composition.bounds)}")
    else:
        for name, reward in rewards().items():
            typer.echo(f"{name:<36} {reward.formula}")


def markdown() -> str:
    """The current text of docs/rewards.md."""
    parts = [_HEAD, *(_section(name, reward) for name, reward in rewards().items()), _COMPOSITIONS]
    for name in shipped():
        composition = load(name)
        parts.append(f"| `{name}` | {_range(composition.bounds)} | {composition.description} |\n")
    return "".join(parts)


def _section(name: str, reward: LocalizationReward) -> str:
    about = (inspect.getmodule(reward.bounds).__doc__ or "").strip()  # the plugin's own module
    rows = [_row(argument, field) for argument, field in reward.args.model_fields.items()]
    table = "\n".join(["\n| argument | default | what |", "|---|---|---|", *rows]) + "\n" if rows else ""
    by_default = _range(reward.bounds(reward.args()))
    facts = f"- Value: {reward.formula}\n- Range, by default: {by_default}\n- Edges: {reward.edges}\n"
    return f"\n## {name}\n\n{about}\n\n{facts}{table}"


def _row(name: str, field: FieldInfo) -> str:
    default = "null" if field.default is None else str(field.default).lower()
    what = " ".join((field.description or "").split()).replace("|", "\\|")
    return f"| `{name}` | `{default}` | {what} |"


def _range(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:g} to {bounds[1]:g}"
