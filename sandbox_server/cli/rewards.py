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
including the answer; a call is one tool call. The total of a composition is the sum of weight times value. If a reward
fails or leaves its range, the verdict is `infra`, masked.
"""
_OTHERWISE_HEAD = """
## Differences from agentic-code-search

The same YAML can give other scores there, and its versions differ too: v1 is the documented one, v2 its branch `main`,
v3 `major-update`, v4 codescout.

| YAML | here | there | how to get its score here |
|---|---|---|---|
"""
_OTHERWISE = (
    ("`fn: tool_use_reward`", "v1, at most 50", "v1, v2: no bound", "`cap: 1000`"),
    ("the same", "v1", "v3: calls per turn, at most 5, divided by 5", "`variant: v3`"),
    ("`fn: cosine_reward`", "v1", "v3: other curves, threshold 1.5", "`variant: v3`"),
    ("`fn: multiturn_reward`", "1 to 5 turns", "v1, v2: above 1", "`{minimal_turns: 2, maximal_turns: null}`"),
    ("`fn: format_reward`", "all of the answer was parsed", "v3: a fence, and one more", "none"),
    (
        "`fn: multilevel_localization_f1_reward`",
        "a level without truth is left out",
        "v1: such a level earns its weight if nothing was named there",
        "the three `*_localization_f1_reward` with `empty: 1.0`",
    ),
    ("the same, `fn: file_localization_f1_reward`", "nothing to find or named: 1", "v2, v4: 0", "`empty: 0.0`"),
    ("the same", "a file line alone is the file", "v1 to v3, text: only files with a function", "none"),
    ("the same", "`__init__` is a method", "v1 to v3, text: cut from answers", "none"),
    ("the same", "files that the patch creates are neutral", "v1, v2: to be found", "none"),
    ("the same", "all changed files", "truth by `file_changes`: Python alone", "`instances import --only .py`"),
    ("any, without an answer", "each reward's value for no answer", "v1, v2: -10 in total", "none"),
    ("any", "one total", "v1: times 0.9 for each turn after it", "`discount: 0.9`"),
)
_COMPOSITIONS = """
## Compositions shipped with the service

| name | range of the total | what |
|---|---|---|
"""


@app.command(epilog="Example: sandbox-server rewards --check rewards.yaml")
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
    sections = (_section(name, reward) for name, reward in rewards().items())
    otherwise = (f"| {' | '.join(cells)} |\n" for cells in _OTHERWISE)
    parts = [_HEAD, *sections, _OTHERWISE_HEAD, *otherwise, _COMPOSITIONS]
    for name in shipped():
        composition = load(name)
        parts.append(f"| `{name}` | {_range(composition.bounds)} | {composition.description} |\n")
    return "".join(parts)


def _section(name: str, reward: LocalizationReward) -> str:
    about = (inspect.getmodule(reward.bounds).__doc__ or "").strip()  # the plugin's own module
    rows = [_row(argument, field) for argument, field in reward.args.model_fields.items()]
    table = "\n".join(["\n| argument | default | what |", "|---|---|---|", *rows]) + "\n" if rows else ""
    by_default = _range(reward.bounds(reward.args()))
    facts = f"- Value: {reward.formula}\n- Range with the defaults: {by_default}\n- Special cases: {reward.edges}\n"
    return f"\n## {name}\n\n{about}\n\n{facts}{table}"


def _row(name: str, field: FieldInfo) -> str:
    default = "null" if field.default is None else str(field.default).lower()
    what = " ".join((field.description or "").split()).replace("|", "\\|")
    return f"| `{name}` | `{default}` | {what} |"


def _range(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:g} to {bounds[1]:g}"
