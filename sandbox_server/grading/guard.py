"""Guards the test runner's own files: a patch that rewrites them can make any test pass.

Source: SWE-bench issues #601, #620, #631: a patch that is nothing but a conftest.py is scored as resolved.

What this cannot see: product code runs inside the runner's process too and can tamper from there. The guard removes
the cheap ways, the library's exit-code check some more, and the receipt keeps what was graded.
"""

import posixpath
import re
import shlex
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import translate
from itertools import chain
from typing import Literal

from sandbox_server.catalogue.diff import FileSection, file_sections, touched_paths
from sandbox_server.catalogue.eval_script import split
from sandbox_server.catalogue.instance import ScriptGrader, SwebenchGrader, SweproGrader, TaskInstance
from sandbox_server.grading.own_tests import changed_inside, own_tests, test_folders

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
    "entry_points.txt",  # in a *.egg-info or *.dist-info: plugins of the runner
    # run by the benchmark's own `pip install -e .`, as root, before the tests
    "setup.py",
    # runners of other projects and languages
    "runtests.py",
    "noxfile.py",
    "jest.config.*",
    # what turns the tests' own text into what runs, and what runs before each of their files
    "babel.config.*",
    ".babelrc*",
    "jest.setup.*",
    "vitest.setup.*",
    "setupTests.*",
    "karma.conf.*",
    "vitest.config.*",
    ".mocharc*",
    # what the test command itself is, and what its package manager preloads or runs instead
    "package.json",
    ".npmrc",
    ".yarnrc*",
    ".pnpmfile.cjs",
    "vite.config.*",  # read by vitest too
    "postcss.config.*",  # run in vitest's own process
    ".postcssrc*",
    "vitest.workspace.*",
    "ava.config.*",
    ".taprc",
    ".rspec",
    # run before each file of Ruby's tests; what takes the place of the runner or of its plugins
    "spec_helper.rb",
    "rails_helper.rb",
    "test_helper.rb",
    "Rakefile",
    "Gemfile",
    "Gemfile.lock",
    "composer.json",
    "phpunit*.xml",
    "phpunit.xml.dist",
    "GNUmakefile",  # make prefers it to the Makefile
    # which tests run, how, and whether a failure counts (testFailureIgnore, harness = false)
    "pom.xml",
    "mvnw",
    "build.gradle",
    "build.gradle.kts",
    "settings.gradle",
    "settings.gradle.kts",
    "gradle.properties",
    "gradlew",
    "gradle-wrapper.*",  # which gradle is run
    "junit-platform.properties",
    "Cargo.toml",
    "build.xml",
    "rust-toolchain",  # names the folder that cargo itself is taken from
    "rust-toolchain.toml",
    "go.work",
)
"""Base-name patterns, in any folder."""

RUNNER_FOLDERS = frozenset(
    {
        ".git",  # git refuses paths inside; `patch` would write hooks there, which the benchmark's script then runs
        ".cargo",  # its config may name a runner of the tests
        ".mvn",  # extensions and options of maven
        "buildsrc",  # code of gradle's build, which runs before and around the tests
        # installed packages, the runner's own among them, and the environment that the tests are started in
        ".venv",
        "site-packages",
        "dist-packages",
        "node_modules",
    }
)
"""Everything in a folder of such a name, in lower case, belongs to the runner."""

_VENDORED_RUNNER = re.compile(r"(?:.*/)?vendor/(?:bin|bundle|composer|phpunit|autoload\.php)(?:/.*)?")
"""What Composer and Bundler install; of the rest of such a folder a product may have a copy."""

_RUNNER_FILE = re.compile("|".join(map(translate, RUNNER_FILES)))

RUNNER_MODULES = frozenset(
    {"pytest", "_pytest", "pluggy", "iniconfig", "py", "xdist", "nose", "coverage", "tox", *sys.stdlib_module_names}
) - {"test", "this", "antigravity"}  # `test` is a natural name, and no runner imports the standard module
"""A new module with one of these names, in a folder early in sys.path, is imported instead of the real one."""

_START_UP_MODULES = frozenset({"sitecustomize", "usercustomize"})
"""The same in any folder: a *.pth of an editable install puts the project's folder into sys.path before they run."""

_LEADING_FOLDERS = frozenset({"", "bin", "test", "tests", "testing"})
"""Where a new file can shadow a module: the working folder (`python -m pytest`) and folders of runner scripts."""

_MODULE_SUFFIXES = (".py", ".pyc", ".so")

_OF_TESTS = re.compile(r"(?:^|[/_.-])(?:tests?|testing|runtests?|specs?)(?:[/_.-]|$)", re.IGNORECASE)
"""A path that says that it is of tests. A command may also name the product that it runs."""


@dataclass(frozen=True, slots=True)
class ScreenedPatch:
    """A patch as the guard has read and, if so configured, cut it."""

    patch: bytes
    """The patch to grade; b"" if everything was stripped."""
    runner_files: tuple[str, ...]
    """Runner files that this patch touches but neither gold nor the test patch does."""
    stripped: tuple[str, ...]
    """The runner files and tests that were removed from `patch`."""


def screen(patch: bytes, instance: TaskInstance, policy: RunnerFilePolicy) -> ScreenedPatch:
    """Find the runner's own files in `patch`; with `strip`, remove their sections.

    A renamed file is removed with both its names. With `refuse`, the caller refuses the patch. `strip` also leaves out
    changes of the row's tests and of what lies beside them, and the patch's own tests where a log could not tell them
    from the row's.
    """
    sections = file_sections(patch)
    gold, tested = touched_paths(instance.gold_patch.encode()), touched_paths(instance.test_patch.encode())
    allowed = gold | tested
    shadows, named = _shadowing_roots(sections), _named_paths(instance)
    found = {section: _runner_paths(section, shadows, named) - allowed for section in sections}
    runner_files = tuple(sorted(frozenset().union(*found.values())))
    replaced = allowed | instance.files.keys()
    if policy != "strip":
        return ScreenedPatch(patch, runner_files, ())
    names = instance.fail_to_pass, instance.pass_to_pass
    folders = test_folders(chain(*names), tested | instance.files.keys(), gold)
    own = own_tests(sections, replaced, *names) | changed_inside(sections, folders, replaced)
    kept = b"".join(section.text for section in sections if not found[section] and not own & section.paths)
    return ScreenedPatch(kept, runner_files, tuple(sorted({*runner_files, *own})))


def _runner_paths(section: FileSection, shadows: frozenset[str], named: frozenset[str]) -> frozenset[str]:
    own = {path for path in section.paths if path in named or _is_runner_file(path)}
    shadowing = {path for path in section.created if _ancestry(path) & shadows} if shadows else set()
    return frozenset(own | shadowing)


def _named_paths(instance: TaskInstance) -> frozenset[str]:
    """Paths in the repository that the activation names, and those of tests that the test command names.

    Not those that are placed over the patch anyway.
    """
    command, placed = "", instance.files.keys()
    match instance.grader:
        case ScriptGrader():
            command = instance.grader.command
        case SwebenchGrader():
            with suppress(ValueError):  # the grading says what is wrong with the script
                command = split(instance.grader.eval_script).tests
        case SweproGrader() if not instance.grader.restore_tests:
            command = shlex.join(instance.grader.selected_test_files)
    workdir = instance.sandbox.workdir.rstrip("/") + "/"
    activation, tests = (
        {posixpath.normpath(word.partition("::")[0].removeprefix(workdir)) for word in _words(text)}
        for text in (instance.sandbox.activate, command)
    )
    return frozenset(activation | {path for path in tests if _OF_TESTS.search(path)}) - placed


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # an open quote, as in a here-document
        return text.split()


def _is_runner_file(path: str) -> bool:
    if _RUNNER_FILE.match(posixpath.basename(path)) or _VENDORED_RUNNER.fullmatch(path):
        return True
    return not RUNNER_FOLDERS.isdisjoint(path.lower().split("/"))


def _shadowing_roots(sections: Iterable[FileSection]) -> frozenset[str]:
    """New files, package folders and links to such that would be imported instead of a runner module."""
    roots = set()
    for section in sections:
        for path in section.created:
            folder, name = posixpath.split(path)
            is_module = name.endswith(_MODULE_SUFFIXES)
            root = folder if is_module and name.partition(".")[0] == "__init__" else path
            where, name = posixpath.split(root)
            module = name.partition(".")[0]
            if (is_module or "link" in section.marks) and (
                module in _START_UP_MODULES or (where in _LEADING_FOLDERS and module in RUNNER_MODULES)
            ):
                roots.add(root)
    return frozenset(roots)


def _ancestry(path: str) -> set[str]:
    """The path itself and all folders above it."""
    parts = path.split("/")
    return {"/".join(parts[:end]) for end in range(1, len(parts) + 1)}
