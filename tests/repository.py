"""A repository as tasks have it: a base commit with all that is awkward in a tree, and after it the fix."""

import os
import random
import subprocess
from pathlib import Path

FIX = "def add(a, b):\n    return a + b\n"
BUG = "def add(a, b):\n    return a - b\n"
BUG_PATCH = """\
diff --git a/src/right.py b/src/right.py
--- a/src/right.py
+++ b/src/right.py
@@ -1,2 +1,2 @@
 def double(a):
-    return 2 * a
+    return 3 * a
"""


class Repository:
    """Made at `path`, with a working tree; git hears nothing of the host's configuration."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")
        self._day = 0
        self.first = ""
        self.base = ""
        self.fix = ""
        self.later = ""

    def git(self, *words: str) -> str:
        """What it prints."""
        day = f"2025-01-{1 + self._day % 28:02d}T12:00:00+0000" if words[0] != "init" else "2025-01-01T00:00:00+0000"
        env = {
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _IDENTITY.items()},
            **{f"GIT_{who}_DATE": day for who in ("AUTHOR", "COMMITTER")},
        }
        done = subprocess.run(["git", *words], cwd=self.path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout.strip()

    def write(self, path: str, text: str | bytes, *, mode: int = 0o644) -> None:
        """A file of the working tree."""
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        file.chmod(mode)

    def take(self, pack: Path) -> None:
        """All objects of a pack."""
        with pack.open("rb") as stream:
            subprocess.run(["git", "index-pack", "--stdin"], stdin=stream, cwd=self.path, check=True)

    def commit(self, message: str) -> str:
        """All of the working tree; the commit's id."""
        self._day += 1
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")


_IDENTITY = {"NAME": "Ada Example", "EMAIL": "ada@example.org"}


def make_repository(path: Path, *, title: str = "A library.\n") -> Repository:
    """History, the base, the fix and what comes after; HEAD is the last commit."""
    made = Repository(path)
    made.write("README.md", title)
    made.write("src/before.py", BUG)
    made.first = made.commit("Begin")
    made.git("mv", "src/before.py", "src/sum.py")
    made.write("src/right.py", "def double(a):\n    return 2 * a\n")
    made.write("src/Größe ☃.py", "size = 1\n")
    made.write('odd "name".txt', "quoted\n")
    made.write("bin/run", "#!/bin/sh\necho run\n", mode=0o755)
    made.write("data.bin", bytes(range(256)))
    made.write("dos.txt", b"one\r\ntwo\r\n")
    made.write("version.py", 'commit = "$Format:%H$"\nident = "$Id$"\n')
    made.write("hidden/test_sum.py", "import sum\n")
    made.write("big.dat", "version https://git-lfs.github.com/spec/v1\noid sha256:" + 64 * "1" + "\nsize 12345\n")
    made.write(
        ".gitattributes",
        "hidden export-ignore\nversion.py export-subst ident\n*.dat filter=lfs diff=lfs merge=lfs -text\n"
        "*.txt text eol=crlf\n",
    )
    made.write(".gitignore", "*.log\n")
    (made.path / "link.py").symlink_to("src/sum.py")
    (made.path / "nowhere").symlink_to("/no/such/file")
    made.base = made.commit("The base")
    made.git("tag", "-a", "-m", "The base's release", "v1.0")
    made.write("src/sum.py", FIX)
    made.fix = made.commit("Fix the sum")
    made.git("tag", "v1.1")
    made.git("branch", "fixed")
    made.write("CHANGES.md", "The sum is right now.\n")
    made.later = made.commit("Tell of the fix")
    made.git("pack-refs", "--all")
    made.git("config", "uploadpack.allowAnySHA1InWant", "false")
    return made


def blob(size: int, seed: int) -> bytes:
    """Bytes that no compression makes less of."""
    return random.Random(seed).randbytes(size)
