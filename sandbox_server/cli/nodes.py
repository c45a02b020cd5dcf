"""`sandbox-server nodes`: the nodes that share this server's Redis."""

import typer

from sandbox_server.cli import api

app = typer.Typer()


@app.command(epilog="Example: sandbox-server nodes")
def nodes() -> None:
    """List the nodes: name, status, sessions, gradings, address, faults."""
    for node in api.call("GET", "/v1/nodes"):
        faults = "; ".join(f"{reason}: {text}" for reason, text in node["faults"].items())
        typer.echo(
            f"{node['node']:<24}  {node['status']:<8}  {node['used']:>4}/{node['slots']} sessions"
            f"  {node['gradings']:>3} gradings  {node['url']}  {faults}".rstrip()
        )
