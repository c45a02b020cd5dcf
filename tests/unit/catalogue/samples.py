"""Rows of each family, and their import from a file."""

import json
from pathlib import Path

from sandbox_server.catalogue.importing import read_instances
from sandbox_server.catalogue.instance import TaskInstance

ADDS = """\
diff --git a/tests/test_new.py b/tests/test_new.py
new file mode 100644
--- /dev/null
+++ b/tests/test_new.py
@@ -0,0 +1 @@
+x
"""
EDITS = """\
diff --git a/tests/test_a.py b/tests/test_a.py
--- a/tests/test_a.py
+++ b/tests/test_a.py
@@ -1 +1,2 @@
 a
+b
"""
BENCH = {
    "instance_id": "Owner__Repo-1",
    "repo": "Owner/Repo",
    "version": "1.0",
    "base_commit": "abc",
    "patch": "gold",
    "test_patch": EDITS + ADDS,
    "problem_statement": "It fails.",
    "hints_text": "a hint",
    "FAIL_TO_PASS": '["t::a"]',
    "PASS_TO_PASS": "['t::b', \"t::c\"]",
}
EVAL_SCRIPT = "#!/bin/bash\n: '>>>>> Start Test Output'\nrun\n: '>>>>> End Test Output'\n"
FIVE = {
    **BENCH,
    "image": "swebench/sweb.eval.x86_64.owner_1776_repo-1:latest",
    "eval_script": EVAL_SCRIPT,
    "log_parser": "parse_log_django",
    "eval_type": "pass_and_fail",
}
SLIME = {
    "prompt": "fix it",
    "label": "slime-1",
    "metadata": {"image": "i:1", "workdir": "/w", "problem_statement": "bug"},
}


def imported(tmp_path: Path, *rows: dict[str, object]) -> list[TaskInstance]:
    """The instances of a file with these rows."""
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_instances(file, swebench4_dir=tmp_path / "no swebench here")
