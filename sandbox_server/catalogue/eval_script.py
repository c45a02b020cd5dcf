"""Eval scripts in the benchmark's shape, and the repair of the one fault in those that 4.1.0 makes. Pure.

The markers reach the log because `set -x` shows the `:` lines on stderr: run it with both streams in one.
"""

import shlex
from collections.abc import Sequence

from sandbox_server.catalogue.patch_files import PatchFiles

_DELIMITER = "EOF_114329324912"
_DATA = (".json", ".png", "csv", ".txt", ".md", ".jpg", ".jpeg", ".pkl", ".yml", ".yaml", ".toml")
"""Endings of files that are no tests. Source: NON_TEST_EXTS of swebench 4.1.0."""


def make_eval_script(
    *,
    workdir: str,
    base_commit: str,
    test_patch: str,
    files: PatchFiles,
    test_cmd: str | Sequence[str],
    activate: str = "",
    install: str = "",
) -> str:
    """A script that puts the benchmark's tests over the tree, runs them between the markers and takes them away.

    `files` are those of `test_patch`. `test_cmd` is one command or several, in which `{test_files}` stands for the
    test files of the patch. Without `base_commit` HEAD serves. `activate` (conda and the like) and `install` are
    left out when empty.

    Raises:
        ValueError: the patch holds the delimiter of the script's here-document.

    """
    if _DELIMITER in test_patch:
        raise ValueError(f"the test patch holds {_DELIMITER}")
    at = shlex.quote(workdir)
    base = shlex.quote(base_commit or "HEAD")
    reset = [*_checkout(base, files.existing), *_remove(files.new)]
    tests = shlex.join(path for path in (*files.existing, *files.new) if not path.endswith(_DATA))
    commands = [test_cmd] if isinstance(test_cmd, str) else test_cmd
    lines = [
        "#!/bin/bash",
        "set -uxo pipefail",
        *([activate] if activate else []),
        f"cd {at}",
        f"git config --global --add safe.directory {at}",
        "git status",
        "git show",
        f"git -c core.fileMode=false diff {base}",
        *([install] if install else []),
        *reset,
        *([f"git apply -v - <<'{_DELIMITER}'\n{test_patch}\n{_DELIMITER}"] if test_patch.strip() else []),
        ": '>>>>> Start Test Output'",
        *(command.replace("{test_files}", tests) for command in commands),
        ": '>>>>> End Test Output'",
        *reset,
    ]
    return "\n".join(lines) + "\n"


def bare_checkout_repaired(eval_script: str, base_commit: str, files: PatchFiles) -> str:
    """4.1.0's script for a test patch that only adds files, without its reset of the whole tree.

    There its `git checkout <base> <files>` names no file and so reverts the image's own set-up commit. Upstream's
    repair: remove the new files instead, before and after. Source: SWE-bench issues 518, 539, 542.
    """
    if files.existing:
        return eval_script
    lines = eval_script.split("\n")
    bare = f"git checkout {base_commit} "
    return "\n".join(line for old in lines for line in (_remove(files.new) if old == bare else [old]))


def _checkout(base: str, files: Sequence[str]) -> list[str]:
    return [f"git checkout {base} {shlex.join(files)}"] if files else []


def _remove(files: Sequence[str]) -> list[str]:
    return [f"rm -f {shlex.join(files)}"] if files else []
