"""`sandbox-server hash ID`: veRL's hash of an instance id. Needs no database and no server."""

import typer

from sandbox_server.catalogue.instance import instance_hash

app = typer.Typer()


@app.callback(invoke_without_command=True)
def print_hash(instance_id: str = typer.Argument(metavar="ID")) -> None:
    """Print int(md5(ID)) mod 2^63."""
    typer.echo(str(instance_hash(instance_id)))
