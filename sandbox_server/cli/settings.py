"""`sandbox-server settings --markdown`: the reference of all settings (docs/settings.md)."""

import inspect
import json
import re
import types
from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from sandbox_server.cli import configuration
from sandbox_server.settings import GROUPS, Settings

app = typer.Typer()

_HEAD = """# Settings

Settings are read from environment variables; else from lines `NAME=value` of the file in SANDBOX_ENV_FILE; else from
files in the folder SANDBOX_SECRETS_DIR, named in lower case (`sandbox_api_keys`), as swarms and Kubernetes mount
secrets. Times are in seconds, sizes in MB.
Made by `sandbox-server settings --markdown` from sandbox_server/settings/; a test fails when it is stale.
"""


@app.command(epilog="Example: sandbox-server settings")
def show(
    as_markdown: bool = typer.Option(False, "--markdown", help="The whole reference, as docs/settings.md."),
) -> None:
    """Print the current settings, or the reference of all; keys are not shown."""
    if as_markdown:
        typer.echo(markdown(), nl=False)
        return
    for name, value in configuration.load():
        typer.echo(f"SANDBOX_{name.upper()}={'' if value is None else value}")


def markdown() -> str:
    """The current text of docs/settings.md: one table for each commented part of the groups."""
    parts = [_HEAD]
    source = "".join(map(inspect.getsource, GROUPS))
    for title, body in re.findall(r"^    # (\w[\w ]*)\n(.*?)(?=^    # |^    @|\Z)", source, re.MULTILINE | re.DOTALL):
        rows = [_row(name) for name in re.findall(r"^    (\w+): ", body, re.MULTILINE)]
        parts.append("\n".join([f"\n## {title}\n", "| setting | type | default | what |", "|---|---|---|---|", *rows]))
    return "\n".join(parts) + "\n"


def _row(name: str) -> str:
    field = Settings.model_fields[name]
    what = " ".join((field.description or "").split()).replace("|", "\\|")
    return f"| `SANDBOX_{name.upper()}` | {_type(field.annotation)} | {_default(name, field)} | {what} |"


def _type(annotation: object) -> str:
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(_type(part) for part in get_args(annotation) if part is not types.NoneType)
    if get_origin(annotation) is Annotated:
        return _type(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    if get_origin(annotation) is tuple:
        return "list"
    if get_origin(annotation) is dict:
        return "JSON object"
    names: dict[type, str] = {
        str: "text",
        SecretStr: "text",
        int: "integer",
        float: "number",
        bool: "0 or 1",
        Path: "path",
    }
    names[IPv4Network] = "address range"
    return names[annotation] if isinstance(annotation, type) else str(annotation)


def _default(name: str, field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "the host's name"
    if field.default is None or field.default == ():
        return "unset"
    if isinstance(field.default, tuple):
        return f"`{','.join(field.default)}`"
    if isinstance(field.default, dict):
        return f"`{json.dumps(field.default, default=BaseModel.model_dump)}`"
    if isinstance(field.default, bool):
        return f"`{int(field.default)}`"
    if isinstance(field.default, float):
        return f"`{field.default:g}`"
    # the same text on every machine
    return f"`{str(field.default).replace(str(Path.home()), '~')}`"
