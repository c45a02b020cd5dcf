"""`sandbox-server dataset verl`: the catalogue's tasks as a parquet file that veRL trains on."""

import asyncio
from pathlib import Path

import typer

from sandbox_server.app.catalogue import open_catalogue
from sandbox_server.catalogue import verl_rows
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.instances import Instances
from sandbox_server.cli import configuration
from sandbox_server.errors import MalformedRequest

_PAGE = 500


def write_verl(
    output: Path = typer.Argument(metavar="FILE", help="Parquet to write, e.g. train.parquet."),  # noqa: B008 -- typer reads it
    dataset: str | None = typer.Option(None, help="Only the tasks of this data set."),
    split: str = typer.Option("train", help="Value of extra_info.split."),
    agent_name: str = typer.Option("sandbox", help="Name of the agent loop, as in agent_loops.yaml."),
    system: Path | None = typer.Option(None, metavar="FILE", help="System prompt; use an empty file for none."),  # noqa: B008 -- as above
    instruction: Path | None = typer.Option(  # noqa: B008 -- as above
        None,
        metavar="FILE",
        help="First user message; {repo}, {version}, {workspace}, {problem_statement}, {instance_id} are filled in.",
    ),
) -> None:
    """Write the catalogue's tasks as rows for veRL, with prompt and agent loop. docs/verl.md."""
    instances = asyncio.run(_gradable(dataset))
    if not instances:
        raise SystemExit(
            "error: the catalogue has no such gradable tasks; import some: `sandbox-server instances import`"
        )
    texts = {"system": verl_rows.SYSTEM if system is None else system.read_text().strip()}
    if instruction is not None:
        texts["instruction"] = instruction.read_text().strip()
    try:
        verl_rows.write(output, instances, split=split, agent_name=agent_name, **texts)
    except (KeyError, ValueError, IndexError) as error:
        raise MalformedRequest(f"{instruction}: not a text with the fields that --help lists: {error}") from None
    typer.echo(f"{len(instances)} tasks in {output}")


async def _gradable(dataset: str | None) -> list[TaskInstance]:
    found: list[TaskInstance] = []
    async with open_catalogue(configuration.load()) as database:
        catalogue, after = Instances(database), ""
        while page := await catalogue.list(dataset=dataset, gradable=True, after=after, limit=_PAGE):
            after = page[-1].instance_id
            found += [await catalogue.by_id(summary.instance_id) for summary in page]
    return [instance for instance in found if not instance.localizes]
