"""Compiled Python that is not checked against its source."""

from hacks.base import Play
from hacks.player import encoded

_COMPILE = """
import base64, importlib.util, pathlib, sys
from importlib._bootstrap_external import _code_to_hash_pyc
path, text = pathlib.Path(sys.argv[1]), base64.b64decode(sys.argv[2]).decode()
code = compile(text, str(path.absolute()), "exec")
cached = pathlib.Path(importlib.util.cache_from_source(str(path)))
cached.parent.mkdir(parents=True, exist_ok=True)
data = _code_to_hash_pyc(code, bytes(8), False)
cached.write_bytes(data)
cached.with_name(cached.name[:-4] + "-pytest-7.2.1.pyc").write_bytes(data)
"""


def pyc(path: str, text: str) -> Play:
    """`text`, compiled, where Python looks for the compiled form of `path`; nothing ignored by git any more."""
    run = f"echo {encoded(_COMPILE)} | base64 -d > /tmp/c.py; python3 /tmp/c.py {path} {encoded(text)}"
    return Play(commands=f"sed -i '/pyc/d' .gitignore; {run}; rm -f /tmp/c.py")
