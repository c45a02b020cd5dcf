"""Patches and sources that the tests of truth share."""

import difflib
import json

from sandbox_server.catalogue.localization.truth import Truth

A_PY = "".join(f"line {number}\n" for number in range(1, 31))
P1 = """\
diff --git a/src/a.py b/src/a.py
index 1111111..2222222 100644
--- a/src/a.py
+++ b/src/a.py
@@ -10,7 +10,8 @@ line 9
 line 10
 line 11
 line 12
-line 13
+line 13 a
+line 13 b
 line 14
 line 15
 line 16
"""
NEW = """\
diff --git a/src/new.py b/src/new.py
new file mode 100644
index 0000000..2222222
--- /dev/null
+++ b/src/new.py
@@ -0,0 +1,2 @@
+a = 1
+b = 2
"""
DELETED = """\
diff --git a/src/old.py b/src/old.py
deleted file mode 100644
index 1111111..0000000
--- a/src/old.py
+++ /dev/null
@@ -1,2 +0,0 @@
-a = 1
-b = 2
"""
RENAMED = """\
diff --git a/src/old.py b/src/new.py
similarity index 80%
rename from src/old.py
rename to src/new.py
index 1111111..2222222 100644
--- a/src/old.py
+++ b/src/new.py
@@ -1,3 +1,3 @@
 a = 1
-b = 2
+b = 3
 c = 3
"""
PURE_RENAME = """\
diff --git a/src/old.py b/src/new.py
similarity index 100%
rename from src/old.py
rename to src/new.py
"""
MODE = "diff --git a/run me.sh b/run me.sh\nold mode 100644\nnew mode 100755\n"
BINARY = """\
diff --git a/logo.png b/logo.png
index 1111111..2222222 100644
Binary files a/logo.png and b/logo.png differ
"""


def diff(path: str, old: str, new: str, *, to: str | None = None, context: int = 3) -> str:
    """As git writes it, for texts that end with a newline."""
    after = to or path
    head = f"diff --git a/{path} b/{after}\n" + (f"rename from {path}\nrename to {after}\n" if to else "")
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{path}", f"b/{after}", n=context
    )
    return head + "".join(lines)


def stored(truth: Truth) -> Truth:
    """Through JSON and back: what cannot be stored is no truth."""
    assert Truth.model_validate(json.loads(truth.model_dump_json())) == truth
    return truth


M_PY = '''\
import os

LIMIT = 3


def helper(a):
    # how
    return a + LIMIT


class Foo:
    """What Foo is."""

    attr = 1

    def __init__(self):
        self.x = 1

    @property
    def prop(self):
        return self.x

    def run(self):
        def inner():
            return 2

        return inner()


class Bar(Foo):
    def other(self, a):
        return a


def run(a):
    return a


async def arun(a):
    return a
'''
