"""Somebody who follows the documents: types their commands on the server's host."""

import shlex
import subprocess
import sys
from collections.abc import Callable

from tests.conftest import ROOT

from .serving import Server


def shell(server: Server) -> Callable[[str], str]:
    """What a line of bash prints (both streams) where `server` is the one at localhost:5000 of the documents."""
    words = f"{shlex.quote(sys.executable)} -m sandbox_server.cli"

    def run(line: str) -> str:
        here = line.replace("localhost:5000", server.url.removeprefix("http://"))
        done = subprocess.run(
            ["bash", "-c", f'sandbox-server() {{ {words} "$@"; }}\n{here}'],
            cwd=ROOT,
            env=server.environment | {"no_proxy": "*"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, f"{here}\n{done.stdout}"
        return done.stdout

    return run
