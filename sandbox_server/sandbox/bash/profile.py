"""What a login shell's profile does, and on what that depends: if on little, it need not run for every command.

A profile is plain if it only tests files, sources files, and sets variables that are exported. Then a shell that is
begun without it, but with these variables, is the same; for as long as the files are. Whatever else a profile does,
here it is not plain, and runs each time.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

_SCRIPT = resources.files(__package__).joinpath("profile.bash").read_text()
_PART, _COMMAND, _ITEM = "\x1d", "\x1e", "\x1f"
_BROKEN = "\ufffd"  # where a byte is of no text
_MOST_BYTES = 32 << 10  # of what it depends on: it is compared before every command
_MOST_DEPENDENCIES = 100
_MOST_TOLD = 128 << 10  # characters of a report: reading one keeps the event loop

# of bash, without an effect but on variables, options and functions, which are compared
_BUILTINS = frozenset((
    ":", "true", "false", "return", "break", "continue", "shift", "local", "declare", "typeset", "readonly", "export",
    "unset", "shopt", "eval", "case", "((",
))  # fmt: skip
_PROGRAMS = frozenset(("mesg", "uname", "locale-check"))  # always say the same, or nothing
_ID = frozenset(("-u", "-un", "-n", "-r", "-ru"))  # of `id`: what USERS decides
_LOCALE_CHECK = "locale-check"  # of Ubuntu: says nothing where no locale is set, else it depends on those installed
USERS = "/etc/passwd"
"""Decides HOME, and what `id` says, so every profile depends on it."""
_FILE_TESTS = frozenset(["-e", "-f", "-d", "-r", "-w", "-x", "-s", "-L", "-h"])
_OTHER_TESTS = frozenset(["-N", "-O", "-G", "-R", "-S", "-b", "-c", "-g", "-k", "-nt", "-ot", "-p", "-ef", "-t", "-u"])
_PATH = re.compile(r"/[^\x00-\x1f]*")
_GLOB = re.compile(r"/[\w./+@%:,=*?-]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=(?!\()")
# what a trace does not show: redirections, and variables that are others each time
_TO_NOWHERE = re.compile(r"(?:[12&]?>|>&)\s?/dev/null|[12]?>&[12]")
_UNSEEN = re.compile(r"[<>]|EPOCH|RANDOM|SECONDS|PID\b|\$\$|\$\{\$|LINENO|COPROC")
_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)

_VARIABLE = re.compile(r"""declare -([-\w]+) (\w+)(=(?:"(?:[^"\\]|\\.)*"|\$'(?:[^'\\]|\\.)*'|\(.*\)))?\n?""", re.DOTALL)
_CHANGING = frozenset((
    "_", "BASHPID", "BASH_ARGC", "BASH_ARGV", "BASH_COMMAND", "BASH_LINENO", "BASH_REMATCH", "BASH_SOURCE",
    "BASH_SUBSHELL", "BASH_XTRACEFD", "EPOCHREALTIME", "EPOCHSECONDS", "FUNCNAME", "LINENO", "OPTIND", "PIPESTATUS",
    "PS4", "RANDOM", "SECONDS", "SHELLOPTS", "SRANDOM",
))  # fmt: skip
_UNSURE = frozenset(("BASH_ENV", "POSIXLY_CORRECT", "BASH_XTRACEFD", "PS4"))  # in the environment


class NotPlain(Exception):
    """The profile does more, or what it does cannot be told."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What decides what a plain profile does, beside the environment and the folder that it begins with."""

    files: tuple[str, ...]
    """Sourced."""
    tests: tuple[tuple[str, str], ...]
    """Of files: operator, path."""
    globs: tuple[str, ...]

    def look(self) -> str:
        """A bash function `__sb_look` that tells all of it, in this request, each with a mark behind it."""
        lines = [f't=; [[ -f {path} ]] && {_read(path)}; tell "$t"' for path in map(shlex.quote, self.files)]
        lines += [f"[[ {test} {shlex.quote(path)} ]]; tell $?" for test, path in self.tests]
        lines += [f't=({glob}); tell "${{t[*]}}"' for glob in self.globs]
        return "\n".join(["__sb_look() {", "local t IFS=", f"tell() {{ printf '%s{_ITEM}' \"$1\"; }}", *lines, "}"])

    def same(self, name: str, told: Sequence[str]) -> str:
        """A bash function of this name that is true where `look` would tell the same.

        Raises:
            NotPlain: what was told is not of these.
        """
        if len(told) != len(self):
            raise NotPlain("a file that holds marks of ours")
        parts = iter(told)
        contents = list(zip(map(shlex.quote, self.files), parts, strict=False))
        tests = [f"-f {path}" for path, _ in contents]
        for (test, path), result in zip(self.tests, parts, strict=False):
            tests.append(f"{'' if result == '0' else '! '}{test} {shlex.quote(path)}")
        checks = [f"[[ {' && '.join(tests)} ]]"] if tests else []
        checks += [f'{{ t=; {_read(path)}; [ "$t" = {shlex.quote(text)} ]; }}' for path, text in contents]
        for glob, names in zip(self.globs, parts, strict=True):
            checks.append(f'{{ t=({glob}); [ "${{t[*]}}" = {shlex.quote(names)} ]; }}')
        return "\n".join([f"{name}() {{", "local t IFS=", " &&\n".join(checks or [":"]), "}"])

    def __len__(self) -> int:
        return len(self.files) + len(self.tests) + len(self.globs)


NOTHING = Dependencies((), (), ())


@dataclass(frozen=True, slots=True)
class Report:
    """What profile.bash tells."""

    told: tuple[str, ...]
    """What the dependencies that it was given were before: texts, exit codes, names."""
    dependencies: Dependencies
    exports: tuple[str, ...]
    """NAME=VALUE, as bash quotes it."""


def script(dependencies: Dependencies) -> str:
    """Tells what the profile does, for `report`; for a login shell without one."""
    return f"{dependencies.look()}\n{_SCRIPT}"


def definition(name: str, dependencies: Dependencies, known: Report) -> str:
    """Bash functions for a channel: `__sb_same_NAME` tells whether nothing changed, `__sb_env_NAME` has its effect.

    Raises:
        NotPlain.

    """
    env = " ".join(["export", *known.exports]) if known.exports else ":"
    return f"{dependencies.same(f'__sb_same_{name}', known.told)}\n__sb_env_{name}() {{ {env}; }}\n"


def report(stdout: str, stderr: str) -> Report:
    """Read what `script` has told.

    Raises:
        NotPlain.

    """
    if len(stdout) > _MOST_TOLD:
        raise NotPlain("what it does is too long to be read")
    parts = stdout.split(_PART)
    if stderr or len(parts) != 8:
        raise NotPlain("it says something, or does not come to its end")
    seen, before, state, trace, status, after, state_after, _ = parts
    if status != "00" or state != state_after:
        raise NotPlain("it fails, or changes the shell's options, functions, folder or umask")
    told = tuple(seen.split(_ITEM)[:-1])
    if len(seen) > _MOST_BYTES or _BROKEN in stdout or any(map(_is_unsure, told)):
        raise NotPlain("it is long, no text, redirects, or uses what is different each time")
    variables = _variables(before)
    if _LOCALE_CHECK in trace and any(name.startswith(("LANG", "LC_")) for name in variables):
        raise NotPlain("it looks at the locales that are installed")
    return Report(told, _dependencies(trace), _exports(variables, _variables(after)))


def _is_unsure(text: str) -> bool:
    return _UNSEEN.search(_TO_NOWHERE.sub("", _COMMENT.sub("", text))) is not None


def _read(path: str) -> str:
    """Of a file, whole, into `t`; bash has no cheaper way without a fork."""
    return f"read -r -d '' t < {path}"


def _exports(before: dict[str, str], after: dict[str, str]) -> tuple[str, ...]:
    changed = {name: text for name, text in after.items() if before.get(name) != text}
    if before.keys() - after.keys() or any(not text.startswith("x=") for text in changed.values()):
        raise NotPlain("it unsets variables, or sets some that are not exported")
    return tuple(f"{name}{text[1:]}" for name, text in changed.items())


def _variables(told: str) -> dict[str, str]:
    """Name -> attributes, `=`, value."""
    found = {}
    for piece in re.split(r"^(?=declare -)", told, flags=re.MULTILINE):
        if not piece:
            continue
        match = _VARIABLE.fullmatch(piece)
        if match is None or ("x" in match[1] and match[2] in _UNSURE):
            raise NotPlain("variables that cannot be told apart, or that change how a shell begins")
        if match[2] not in _CHANGING and not match[2].startswith("__sb_"):
            found[match[2]] = match[1] + (match[3] or "")
    return found


def _dependencies(trace: str) -> Dependencies:
    files: dict[str, None] = {}
    tests: dict[tuple[str, str], None] = {}
    globs: dict[str, None] = {}
    for command in trace.split(_COMMAND):
        name, words = _words(command.strip())
        if name in (".", "source"):
            files[_path(words[0] if words else "")] = None
        elif name in ("[", "[[", "test"):
            tests.update(dict.fromkeys(_tests(words)))
        elif name == "for":
            globs.update(dict.fromkeys(_globs(words)))
        elif not _is_harmless(name, words):
            raise NotPlain(f"it runs {command.strip()}")
    found = Dependencies(tuple(files), tuple(tests), tuple(globs))
    if len(found) > _MOST_DEPENDENCIES:
        raise NotPlain("it depends on too much")
    return found


def _words(command: str) -> tuple[str, list[str]]:
    if not command or _ASSIGNMENT.match(command):
        return ":", []
    try:
        name, *words = shlex.split(command)
    except ValueError:  # as bash quotes them, all of them can be split, but for the heads of some compound commands
        name, *words = command.split()
    return name, words


def _is_harmless(name: str, words: list[str]) -> bool:
    if name == "set":  # of options, which are compared
        return all(word.startswith(("-", "+")) and word != "--" for word in words)
    program = name.removeprefix("/usr").removeprefix("/bin/")
    return name in _BUILTINS or program in _PROGRAMS or (program == "id" and _ID.issuperset(words))


def _tests(words: list[str]) -> Iterator[tuple[str, str]]:
    for at, word in enumerate(words):
        if word in _OTHER_TESTS or (word == "-a" and not at):
            raise NotPlain(f"it tests {word}")
        if word in _FILE_TESTS and at + 1 < len(words):
            yield word, _path(words[at + 1])


def _globs(words: list[str]) -> Iterator[str]:
    for word in words:  # NAME in WORDS, not expanded
        if word == "$@" or not set(word) & set("$*?[~`"):
            continue
        if not _GLOB.fullmatch(word):
            raise NotPlain(f"it goes through {word}")
        yield word


def _path(word: str) -> str:
    if not _PATH.fullmatch(word):
        raise NotPlain(f"it looks at {word}, which is no plain path")
    return word
