"""Applies a patch, then places the tests' own files over it, in one command since each costs a round trip.

A patch is applied as in swebench 5.0.2: up to four commands are tried, each on a clean tree, and the first that exits
with 0 counts. There are two differences. First, before these, `git apply` is tried without any conversion of files:
a session's patch holds the files' bytes as they are, which .gitattributes would convert (line ends, encodings, `$Id$`).
Second, GNU patch gets only the text that git would read, because it would also apply context diffs and ed scripts that
stand between those lines.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from shlex import quote

from sandbox_server.errors import GraderBroken, InfrastructureError
from sandbox_server.grading.reading import plain
from sandbox_server.sandbox.base import Sandbox

APPLY_COMMANDS = (
    "git apply --verbose",
    "git apply --verbose --3way",
    "git apply --verbose --reject",
    "patch --batch --forward --fuzz=5 -p1 -i",
)
"""Copy of `swebench.harness.run_evaluation.GIT_APPLY_CMDS`; in an image without `patch` the last one fails."""

ACCEPT_COMMAND = "git apply --check --reverse"
"""Tried when all commands fail: succeeds if the patch is already in the tree."""

RESET_COMMAND = "git checkout -- . ; git clean -fd"
"""A failed attempt, above all `--reject`, leaves parts behind that would make all later ones fail."""

_AS_BYTES = "* -text !eol -ident !filter !working-tree-encoding"
"""Attributes that turn all conversions off; the same as in prepare.bash, which stores the tree that a session's patch
is taken against."""

_FREE_KB, _FREE_INODES = 64 << 10, 1000
"""With less free disk space (in KiB, besides the patch) or fewer free inodes, a patch may fail for lack of room."""

_PATCH_FILE = "/tmp/patch.diff"
_PLAIN_FILE = "/tmp/patch.plain"
_NO_GIT, _REFUSED, _NOT_CLEARED, _NO_ROOM, _NOT_PLACED = 2, 3, 4, 5, 6
_FIRST_TIER, _NO_TIER = 10, 9
_SAID = 2000
_SAID_BYTES = 4 * _SAID  # at most four for a character

# Arguments: the patch's size in bytes ("" for no patch), the size of its plain form for GNU patch (0: none), the number
# of paths to remove after the patch, those paths, then path and size of each file to place. Stdin: the patch, its plain
# form and the files, concatenated; each `head` reads exactly its share.
_SCRIPT = f"""
tier={_NO_TIER}
size=$1 plain=$2
clear=("${{@:4:$3}}")
shift $((3 + $3))
take() {{
    local file={_PATCH_FILE}
    if [[ $1 == patch ]]; then
        ((plain)) || return
        file={_PLAIN_FILE}
    fi
    "$@" $file || return
    rm -rf -- "${{clear[@]}}" || exit {_NOT_CLEARED}
}}
as_bytes() {{
    local file=.git/info/attributes code
    [[ -d .git ]] && mkdir -p .git/info && {{ [[ ! -e $file ]] || mv $file $file.kept; }} || return
    echo {quote(_AS_BYTES)} > $file || return
    "$@"
    code=$?
    rm -f $file && {{ [[ ! -e $file.kept ]] || mv $file.kept $file; }} || return
    return $code
}}
has_room() {{
    local blocks size inodes left
    read -r blocks size inodes left < <(stat -f -c '%a %S %c %d' .) || return 0
    ((blocks * size >> 10 >= {_FREE_KB} + ($1 >> 9) && (!inodes || left >= {_FREE_INODES})))
}}
apply() {{
    tier={_FIRST_TIER}
    take as_bytes {APPLY_COMMANDS[0]} && exit $tier
    for command in {" ".join(quote(command) for command in APPLY_COMMANDS)}; do
        if [ "$tier" -gt {_FIRST_TIER} ]; then {RESET_COMMAND}; fi
        take $command && exit $tier
        tier=$((tier + 1))
    done
    take {ACCEPT_COMMAND} && exit $tier
    has_room "$size" || exit {_NO_ROOM}
    exit {_REFUSED}
}}
place() {{
    if [[ -d $1 ]]; then echo "a folder is there"
    elif [[ -e $1 && ! -f $1 ]]; then echo "what is there is no file"
    elif [[ $1 != */* ]] || mkdir -p -- "${{1%/*}}/" && : >> "$1"; then
        head -c "$2" > "$1" || exit {_NO_ROOM}
        return
    fi
    return 1
}}
if [[ $size ]]; then
    command -v git > /dev/null || exit {_NO_GIT}
    head -c "$size" > {_PATCH_FILE} && head -c "$plain" > {_PLAIN_FILE} || exit {_NO_ROOM}
    # a patch of many hunks that fail makes hundreds of megabytes of messages
    apply < /dev/null 2>&1 | tail -c {_SAID_BYTES}
    tier=${{PIPESTATUS[0]}}
    ((tier >= {_NO_TIER})) || exit "$tier"
fi
while (($#)); do
    place "$1" "$2" || {{ echo "$1"; exit {_NOT_PLACED}; }}
    shift 2
done
exit "$tier"
"""

GIT_ENV = {"HOME": "/root", "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
"""Git trusts only trees of its own user; an image's tree may belong to another."""


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The outcome of applying a patch."""

    tier: str
    """The command that applied it; "" if none did, or there was no patch."""
    said: str
    """The last characters of its output, at most `_SAID`."""
    refused: bool = False
    """There was a patch, and no command applied it."""
    unplaced: str = ""
    """A file that could not be placed because of what the patch left at its path; "" if all were placed."""
    no_room: bool = False
    """The disk is full. Nothing of the patch has run, so this is not its fault."""


async def apply_patch(
    sandbox: Sandbox, patch: bytes, files: Mapping[str, str], *, clear: Iterable[str], workdir: str, timeout_s: float
) -> ApplyResult:
    """Apply `patch` to the tree at `workdir`, as root; then remove the paths in `clear` and write `files`.

    `files` maps path to text. With an empty patch nothing is removed, but the files are placed. Paths are
    absolute or relative to `workdir`.

    Raises:
        GraderBroken: the image has no git or no such folder. InfrastructureError: not done within `timeout_s`.
            SandboxLost, EngineUnavailable.

    """
    cleared = sorted(clear) if patch else []
    spare = await asyncio.to_thread(plain, patch)
    placed = [(path, text.encode()) for path, text in files.items()]
    sizes = [word for path, data in placed for word in (path, str(len(data)))]
    result = await sandbox.exec(
        ["bash", "-c", _SCRIPT, "apply", str(len(patch) or ""), str(len(spare)), str(len(cleared)), *cleared, *sizes],
        timeout_s=timeout_s,
        stdin=b"".join((patch, spare, *(data for _, data in placed))),
        cwd=workdir,
        env=GIT_ENV,
        user="root",
        merge_streams=True,
        keep_bytes=1 << 16,
    )
    said = result.stdout.text()[-_SAID:]
    if result.exit_code is None:
        raise InfrastructureError(f"the patch was not applied within {timeout_s:.0f} s")
    tiers = ("", *APPLY_COMMANDS, ACCEPT_COMMAND)
    if 0 <= (index := result.exit_code - _NO_TIER) < len(tiers):
        return ApplyResult(tiers[index], said)
    match result.exit_code:
        case code if code == _REFUSED:
            return ApplyResult("", said, refused=True)
        case code if code == _NOT_PLACED:
            return ApplyResult("", said, unplaced=said.rstrip("\n").rpartition("\n")[2])
        case code if code == _NO_ROOM:
            return ApplyResult("", said, no_room=True)
        case code:
            raise GraderBroken(f"no patch can be applied in this image (exit code {code}): {said[-300:]}")
