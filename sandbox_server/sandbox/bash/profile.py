"""Determines the effect of a login shell's profile and what it depends on, so that it need not run for every command.

A profile is plain if it only tests files, sources files and sets exported variables. A shell started without it but
with these variables is then equivalent, as long as the files are unchanged. Any other profile is not plain and runs
each time.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

_SCRIPT = resources.files(__package__).joinpath("profile.bash").read_text()
_PART, _COMMAND, _ITEM = "\x1d", "\x1e", "\x1f"
_BROKEN = "\ufffd"  # a byte that is not valid text
_MOST_BYTES = 32 << 10  # of its dependencies, which are compared before every command
_MOST_DEPENDENCIES = 100
_MOST_TOLD = 128 << 10  # characters of a report; parsing it blocks the event loop

# bash builtins that affect only variables, options and functions, all of which are compared
_BUILTINS = frozenset((
    ":", "true", "false", "return", "break", "continue", "shift", "local", "declare", "typeset", "readonly", "export",
    "unset", "shopt", "eval", "case", "((",
))  # fmt: skip
_PROGRAMS = frozenset(("mesg", "uname", "locale-check"))  # always print the same, or nothing
_ID = frozenset(("-u", "-un", "-n", "-r", "-ru"))  # options of `id` whose output USERS decides
_LOCALE_CHECK = "locale-check"  # Ubuntu's; silent if no locale is set, else its output varies
USERS = "/etc/passwd"
"""Decides HOME and the output of `id`, so every profile depends on it."""
_FILE_TESTS = frozenset(["-e", "-f", "-d", "-r", "-w", "-x", "-s", "-L", "-h"])
_OTHER_TESTS = frozenset(["-N", "-O", "-G", "-R", "-S", "-b", "-c", "-g", "-k", "-nt", "-ot", "-p", "-ef", "-t", "-u"])
_PATH = re.compile(r"/[^\x00-\x1f]*")
_GLOB = re.compile(r"/[\w./+@%:,=*?-]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=(?!\()")
# what a trace does not show: redirections, and variables with a different value each time
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
    """The profile does more than a plain one, or its effect cannot be determined."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What a plain profile's effect depends on, besides its environment and working directory."""

    files: tuple[str, ...]
    """Sourced files."""
    tests: tuple[tuple[str, str], ...]
    """File tests: operator, path."""
    globs: tuple[str, ...]

    def look(self) -> str:
        """A bash function `__sb_look` that prints the state of all dependencies in order, each followed by a mark."""
        lines = [f't=(); [[ -f {path} ]] && {_read(path)}; tell "$t"' for path in map(shlex.quote, self.files)]
        lines += [f"[[ {test} {shlex.quote(path)} ]]; tell $?" for test, path in self.tests]
        lines += [f't=({glob}); tell "${{t[*]}}"' for glob in self.globs]
        return "\n".join(["__sb_look() {", "local t IFS=", f"tell() {{ printf '%s{_ITEM}' \"$1\"; }}", *lines, "}"])

    def same(self, name: str, states: Sequence[str]) -> str:
        """A bash function `name` that is true if `look` would print `states` again.

        Raises:
            NotPlain: `states` does not match these dependencies.
        """
        if len(states) != len(self):
            raise NotPlain("a file contains the service's own marks")
        parts = iter(states)
        contents = list(zip(map(shlex.quote, self.files), parts, strict=False))
        tests = [f"-f {path}" for path, _ in contents]
        for (test, path), result in zip(self.tests, parts, strict=False):
            tests.append(f"{'' if result == '0' else '! '}{test} {shlex.quote(path)}")
        checks = [f"[[ {' && '.join(tests)} ]]"] if tests else []
        checks += [f'{_read(path)} && [ "$t" = {shlex.quote(text)} ]' for path, text in contents]
        for glob, names in zip(self.globs, parts, strict=True):
            checks.append(f'{{ t=({glob}); [ "${{t[*]}}" = {shlex.quote(names)} ]; }}')
        return "\n".join([f"{name}() {{", "local t IFS=", " &&\n".join(checks or [":"]), "}"])

    def __len__(self) -> int:
        return len(self.files) + len(self.tests) + len(self.globs)


NOTHING = Dependencies((), (), ())


@dataclass(frozen=True, slots=True)
class Report:
    """The output of profile.bash."""

    states: tuple[str, ...]
    """The state of the given dependencies before the profile ran: file contents, exit codes, names."""
    dependencies: Dependencies
    exports: tuple[str, ...]
    """NAME=VALUE, quoted by bash."""


def script(dependencies: Dependencies) -> str:
    """A script whose output `report` parses; for a login shell started without a profile."""
    return f"{dependencies.look()}\n{_SCRIPT}"


def definition(name: str, dependencies: Dependencies, known: Report) -> str:
    """Bash functions for a channel: `__sb_same_NAME` is true if nothing changed, `__sb_env_NAME` has the profile's
    effect.

    Raises:
        NotPlain.

    """
    env = " ".join(["export", *known.exports]) if known.exports else ":"
    return f"{dependencies.same(f'__sb_same_{name}', known.states)}\n__sb_env_{name}() {{ {env}; }}\n"


def report(stdout: str, stderr: str) -> Report:
    """Parse the output of `script`.

    Raises:
        NotPlain.

    """
    if len(stdout) > _MOST_TOLD:
        raise NotPlain("its trace is too long to parse")
    parts = stdout.split(_PART)
    if stderr or len(parts) != 8:
        raise NotPlain("it prints something, or does not run to its end")
    seen, before, state, trace, status, after, state_after, _ = parts
    if status != "00" or state != state_after:
        raise NotPlain("it fails, or changes the shell's options, functions, working directory or umask")
    states = tuple(seen.split(_ITEM)[:-1])
    if len(seen) > _MOST_BYTES or _BROKEN in stdout or any(map(_is_unsure, states)):
        raise NotPlain("it is too long, not text, redirects, or uses values that change each time")
    variables = _variables(before)
    if _LOCALE_CHECK in trace and any(name.startswith(("LANG", "LC_")) for name in variables):
        raise NotPlain("it checks which locales are installed")
    return Report(states, _dependencies(trace), _exports(variables, _variables(after)))


def _is_unsure(text: str) -> bool:
    return _UNSEEN.search(_TO_NOWHERE.sub("", _COMMENT.sub("", text))) is not None


def _read(path: str) -> str:
    """Bash text that reads the whole file into `t`; `read` takes twice as long. It fails before bash 4.4."""
    return f"mapfile -d '' t < {path}"


def _exports(before: dict[str, str], after: dict[str, str]) -> tuple[str, ...]:
    changed = {name: text for name, text in after.items() if before.get(name) != text}
    if before.keys() - after.keys() or any(not text.startswith("x=") for text in changed.values()):
        raise NotPlain("it unsets variables, or sets some without exporting them")
    return tuple(f"{name}{text[1:]}" for name, text in changed.items())


def _variables(declared: str) -> dict[str, str]:
    """Parse `declare -p`: name -> attributes, `=`, value."""
    found = {}
    for piece in re.split(r"^(?=declare -)", declared, flags=re.MULTILINE):
        if not piece:
            continue
        match = _VARIABLE.fullmatch(piece)
        if match is None or ("x" in match[1] and match[2] in _UNSURE):
            raise NotPlain("it has variables that cannot be parsed, or that change how a shell starts")
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
        raise NotPlain("it has too many dependencies")
    return found


def _words(command: str) -> tuple[str, list[str]]:
    if not command or _ASSIGNMENT.match(command):
        return ":", []
    try:
        name, *words = shlex.split(command)
    except ValueError:  # bash's quoting can always be split, except in the heads of some compound commands
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
            raise NotPlain(f"it loops over {word}")
        yield word


def _path(word: str) -> str:
    if not _PATH.fullmatch(word):
        raise NotPlain(f"it uses {word}, which is not a plain path")
    return word
