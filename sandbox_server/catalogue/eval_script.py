"""Eval scripts in the benchmark's format: cutting at their markers, and repairing the one fault of 4.1.0's. Pure.

In the benchmark's own harness the markers reach the log because `set -x` shows the `:` lines on stderr.
"""

import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sandbox_server.catalogue.diff import FileSection, file_sections
from sandbox_server.catalogue.patch_files import PatchFiles

_DELIMITER = "EOF_114329324912"
_DATA = (".json", ".png", "csv", ".txt", ".md", ".jpg", ".jpeg", ".pkl", ".yml", ".yaml", ".toml")
"""Endings of files that are not tests. Source: NON_TEST_EXTS of swebench 4.1.0."""

START_MARKER, END_MARKER = ">>>>> Start Test Output", ">>>>> End Test Output"

TEST_PATCH_REFUSED = 97
"""Exit code of a set-up changed by `exit_if_test_patch_refused` whose patch does not apply."""

_APPLY = re.compile(r"git apply [^|&;<>\n]*<<[ \t]*(['\"]?)(\w+)\1[ \t]*")


@dataclass(frozen=True, slots=True)
class EvalScript:
    """The parts of a script before and between its markers."""

    setup: str
    tests: str


def split(eval_script: str) -> EvalScript:
    """Cut `eval_script` at the lines that print the markers.

    Raises:
        ValueError: it has no such lines, so the tests' output cannot be separated from the rest.

    """
    lines = eval_script.split("\n")
    # Of several start markers take the last one: a test patch in the script may quote one.
    starts = [number for number, line in enumerate(lines) if _marks(START_MARKER, line)]
    ends = [number for number, line in enumerate(lines) if _marks(END_MARKER, line) and number > max(starts, default=0)]
    if not starts or not ends:
        raise ValueError(f"no line of it is `: '{START_MARKER}'`, or none after that is `: '{END_MARKER}'`")
    return EvalScript("\n".join(lines[: starts[-1]]), "\n".join(lines[starts[-1] + 1 : ends[0]]))


def _marks(marker: str, line: str) -> bool:
    return re.fullmatch(rf"(?::|echo) (['\"]?){re.escape(marker)}\1\s*", line) is not None


def without_files(setup: str, test_patch: str, paths: Collection[str]) -> str:
    """`setup` with the sections of `paths` removed from its test patch, because these files are written otherwise.

    Nothing in the container then shows their original text. Sections that rename files are kept. `setup` is returned
    unchanged if it holds the patch in another form, or if applying an empty patch would end it.
    """
    sections = file_sections(test_patch.encode())
    left = b"".join(section.text for section in sections if not _is_whole(section) or not section.new <= set(paths))
    if not test_patch.strip() or (not left and re.search(r"^set -\w*e", setup, re.MULTILINE)):
        return setup
    return setup.replace(test_patch.strip("\n"), left.decode().strip("\n"), 1)


def exit_if_test_patch_refused(setup: str) -> str:
    """`setup` that exits with TEST_PATCH_REFUSED if `git apply` refuses its test patch.

    The benchmark's scripts go on then, with the tests that the repository already has. A patch can make git refuse all
    of the test patch, for example by a link in place of one new folder, and old tests pass without a fix. A patch of
    which `without_files` has left nothing may fail.
    """
    lines = setup.split("\n")
    for number, line in enumerate(lines):
        if found := _APPLY.fullmatch(line):
            end = [*lines, found[2]].index(found[2], number + 1)
            if any(text.strip() for text in lines[number + 1 : end]):
                lines[number] = f"{line} || exit {TEST_PATCH_REFUSED}"
    return "\n".join(lines)


def _is_whole(section: FileSection) -> bool:
    """Whether the section results in one text file, whatever was there before."""
    return len(section.new) == 1 and section.old <= section.new and not section.marks


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
    """Make a script that puts the benchmark's tests into the tree, runs them between the markers and removes them.

    `files`: the files of `test_patch`. `test_cmd`: one or more commands, in which `{test_files}` stands for the test
    files of the patch. An empty `base_commit` means HEAD. An empty `activate` (conda and the like) or `install` is left
    out.

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
    """Remove the reset of the whole tree from a 4.1.0 script whose test patch only adds files.

    Its `git checkout <base> <files>` names no file there and so reverts the image's own set-up commit. As upstream's
    fix, the new files are removed instead, before and after. Source: SWE-bench issues 518, 539, 542.
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
