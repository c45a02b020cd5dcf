"""Guards the test runner's own files: a patch that rewrites them can make any test pass.

Source: SWE-bench issues #601, #620, #631: a patch that is nothing but a conftest.py is scored as resolved.

What this cannot see: product code runs inside the runner's process too and can tamper from there. The guard removes
the cheap ways, the library's exit-code check some more, and the receipt keeps what was graded.
"""

import posixpath
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import translate
from typing import Literal

from sandbox_server.catalogue.diff import FileSection, file_sections, touched_paths
from sandbox_server.catalogue.instance import TaskInstance

RunnerFilePolicy = Literal["strip", "flag", "refuse"]

RUNNER_FILES: tuple[str, ...] = (
    # imported or read by pytest
    "conftest.py",
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    "tox.ini",
    "setup.cfg",
    "pyproject.toml",
    ".coveragerc",  # may name plugins to import
    # run by every Python at start-up
    "sitecustomize.py",
    "usercustomize.py",
    "*.pth",
    # run by the benchmark's own `pip install -e .`, as root, before the tests
    "setup.py",
    # runners of other projects and languages
    "runtests.py",
    "noxfile.py",
    "jest.config.*",
    "karma.conf.*",
    "vitest.config.*",
    ".mocharc*",
    # what the test command itself is, and what its package manager preloads or runs instead
    "package.json",
    ".npmrc",
    ".yarnrc*",
    ".pnpmfile.cjs",
    "vite.config.*",  # read by vitest too
    "vitest.workspace.*",
    "ava.config.*",
    ".taprc",
    ".rspec",
    "phpunit*.xml",
    "phpunit.xml.dist",
)
"""Base-name patterns, in any folder."""

RUNNER_FOLDERS = frozenset(
    {
        ".git",  # git refuses paths inside; `patch` would write hooks there, which the benchmark's script then runs
        ".cargo",  # its config may name a runner of the tests
        ".mvn",  # extensions and options of maven
    }
)
"""Everything in a folder of such a name, in lower case, belongs to the runner."""

_RUNNER_FILE = re.compile("|".join(map(translate, RUNNER_FILES)))

RUNNER_MODULES = frozenset(
    {"pytest", "_pytest", "pluggy", "iniconfig", "py", "xdist", "nose", "coverage", "tox", *sys.stdlib_module_names}
) - {"test", "this", "antigravity"}  # `test` is a natural name, and no runner imports the standard module
"""A new module with one of these names, in a folder early in sys.path, is imported instead of the real one."""

_LEADING_FOLDERS = frozenset({"", "bin", "test", "tests", "testing"})
"""Where a new file can shadow a module: the working folder (`python -m pytest`) and folders of runner scripts."""

_MODULE_SUFFIXES = (".py", ".pyc", ".so")


@dataclass(frozen=True, slots=True)
class Screened:
    """A patch as the guard has read and, if so configured, cut it."""

    patch: bytes
    """The patch to grade; b"" if everything was stripped."""
    runner_files: tuple[str, ...]
    """Runner files that this patch touches but neither gold nor the test patch does."""
    stripped: tuple[str, ...]
    """The runner files removed from `patch`."""


def screen(patch: bytes, instance: TaskInstance, policy: RunnerFilePolicy) -> Screened:
    """Find the runner's own files in `patch`; with `strip`, remove their sections.

    A renamed file is removed with both its names. With `refuse`, the caller refuses the patch.
    """
    sections = file_sections(patch)
    allowed = touched_paths(instance.gold_patch.encode()) | touched_paths(instance.test_patch.encode())
    shadows = _shadowing_roots(path for section in sections for path in section.created)
    found = {section: _runner_paths(section, shadows) - allowed for section in sections}
    runner_files = tuple(sorted(frozenset().union(*found.values())))
    if policy != "strip" or not runner_files:
        return Screened(patch, runner_files, ())
    kept = b"".join(section.text for section in sections if not found[section])
    return Screened(kept, runner_files, runner_files)


def _runner_paths(section: FileSection, shadows: frozenset[str]) -> frozenset[str]:
    named = {path for path in section.paths if _is_runner_file(path)}
    shadowing = {path for path in section.created if _ancestry(path) & shadows} if shadows else set()
    return frozenset(named | shadowing)


def _is_runner_file(path: str) -> bool:
    return _RUNNER_FILE.match(posixpath.basename(path)) is not None or not RUNNER_FOLDERS.isdisjoint(
        path.lower().split("/")
    )


def _shadowing_roots(created: Iterable[str]) -> frozenset[str]:
    """Files and package folders among `created` that would be imported instead of a runner module."""
    roots = set()
    for path in created:
        folder, name = posixpath.split(path)
        root = folder if name == "__init__.py" else path
        where, module = posixpath.split(root)
        if root is path and not name.endswith(_MODULE_SUFFIXES):
            continue
        if where in _LEADING_FOLDERS and module.split(".")[0] in RUNNER_MODULES:
            roots.add(root)
    return frozenset(roots)


def _ancestry(path: str) -> set[str]:
    """The path itself and all folders above it."""
    parts = path.split("/")
    return {"/".join(parts[:end]) for end in range(1, len(parts) + 1)}
