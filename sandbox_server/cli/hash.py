"""`sandbox-server hash ID`: veRL's hash of an instance id. Needs no database and no server."""

import typer

from sandbox_server.catalogue.instance import instance_hash

app = typer.Typer()


@app.command(epilog="Example: sandbox-server hash django__django-11099")
def print_hash(instance_id: str = typer.Argument(metavar="ID", help="Id of the instance, as in its row.")) -> None:
    """Print the instance_hash of an instance id: int(md5(ID)) mod 2^63."""
    typer.echo(str(instance_hash(instance_id)))
