"""The tiny repository that gradings are tried on: its tree, its right fix, and patches made by real git."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

TREE: Mapping[str, bytes] = {
    "calc/__init__.py": b"def add(*numbers):\n    return numbers[0] - sum(numbers[1:])\n\n\n"
    b"def mul(a, b):\n    return a * b\n",
    "calc/table.bin": b"\0\1\2\3",
    "tests/test_calc.py": b"from calc import add, mul\n\n\ndef test_mul():\n    assert mul(2, 3) == 6\n",
    "kept/tests/expected.py": b"SIX = 6\n",
    "kept/tests/test_kept.py": b"import calc\nfrom expected import SIX\n\n\ndef test_kept():\n"
    b"    assert calc.mul(2, 3) == SIX\n",
    "README.md": b"calc\n",
}
FIXED = b"def add(*numbers):\n    return sum(numbers)\n\n\ndef mul(a, b):\n    return a * b\n"
TESTS: Mapping[str, bytes] = {
    "tests/test_calc.py": TREE["tests/test_calc.py"] + b"\n\ndef test_add():\n    assert add(2, 3) == 5\n",
    "tests/test_new.py": b"from calc import add\n\n\ndef test_many():\n    assert add(1, 2, 3) == 6\n",
}

# A commit id that depends on nothing but the content, so that patches made here apply in the image.
_GIT_ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_NAME": "Ada" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "ada@example.org" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_DATE": "2025-01-01T12:00:00+0000" for who in ("AUTHOR", "COMMITTER")},
}


class Repository:
    """The tree on this side, where patches are made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.git("init", "-q")
        self.write(TREE)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "base")
        self.head = self.git("rev-parse", "HEAD").decode().strip()

    def git(self, *arguments: str) -> bytes:
        return subprocess.run(["git", *arguments], cwd=self.path, env=_GIT_ENV, check=True, capture_output=True).stdout

    def write(self, files: Mapping[str, bytes | None]) -> None:
        for name, data in files.items():
            path = self.path / name
            if data is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def diff(self, files: Mapping[str, bytes | None]) -> bytes:
        """The patch that writes `files` (None: deletes); the tree is clean again afterwards."""
        self.write(files)
        self.git("add", "-A")
        patch = self.git("diff", "--cached", "--binary", "HEAD")
        self.git("reset", "-q", "--hard", "HEAD")
        return patch
