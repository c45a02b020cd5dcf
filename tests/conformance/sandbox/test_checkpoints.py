"""A copy of a sandbox by a checkpoint: bit for bit the same, now and after what comes next."""

import os
import re
from enum import StrEnum
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, Phase, example, given, note, settings
from hypothesis import strategies as st

from sandbox_server.checkpoints.capture import capture, restore
from sandbox_server.checkpoints.checkpoint import Checkpoint, Part
from sandbox_server.checkpoints.store import Checkpoints
from sandbox_server.errors import NotForkable
from sandbox_server.sandbox.bash.sandbox import BashSandbox
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from sandbox_server.sandbox.inspector import ChangedPaths, ContainerInspector
from sandbox_server.sandbox.tree import HostAccessFailed, Tree

from .backends import OCI_RUNTIME
from .specs import spec

EXAMPLES = int(os.environ.get("SANDBOX_TEST_FORKS", "3"))
"""Scripts of actions that are tried; the long form has 1000."""
SLOWER = 10 if OCI_RUNTIME == "runsc" else 1
"""gVisor takes so many times as long for the system calls that walk a tree."""
SLOW_S = 120.0 * SLOWER
ACTION_S = 60.0
"""For an action: some wait for a FIFO's other end, and are interrupted."""
PHASES = [Phase.explicit, Phase.generate] if EXAMPLES < 1000 else list(Phase)  # a failure in CI is shown as it is

# what another container has otherwise, and what bash itself counts
SHELL = r"""
counted='BASH_[A-Z]+|BASHPID|PPID|S?RANDOM|EPOCH[A-Z]+|SECONDS|HISTCMD|LINENO|PS1|_|__sb_[a-z]+|counted'
declare -p | grep -avE "^declare -[-a-zA-Z]+ ($counted)="
unset counted
declare -p BASH_REMATCH BASH_COMPAT 2>&1; enable -n
HISTTIMEFORMAT= history | sed 's/__sb_b [0-9a-f]*//'
declare -f | grep -av __sb_; declare -F | grep -av __sb_; alias; shopt; set -o; trap -p; umask; ulimit -Sa; ulimit -Ha
pwd; dirs -l; printf '<%s>' "$@"
"""
TREE = r"""
find / /dev/shm -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run/sandbox -o -path /etc/hostname \
  -o -path /etc/hosts -o -path /etc/resolv.conf -o -path /etc/mtab \
  -o -path /.dockerenv -o -path /run/.containerenv \) -prune -o -type d -printf '%p|d|%m|%U|%G|%T@\n' \
  -o -printf '%p|%y|%m|%U|%G|%T@|%s|%l|%n\n' | LC_ALL=C sort
find / /dev/shm -xdev -type f -size -5M -not -path '/run/sandbox/*' -not -path '/usr/lib*' -not -path '/usr/*bin/*' \
  -not -path '/usr/share/*/*/*' -print0 | LC_ALL=C sort -z | xargs -0r cksum
python3 -c '
import os
for top in ("/w", "/etc", "/opt", "/root", "/tmp", "/usr/share", "/dev/shm"):
    for folder, _, files in os.walk(os.fsencode(top)):
        for path in [folder, *(os.path.join(folder, name) for name in files)]:
            if not os.path.islink(path):
                for name in os.listxattr(path):
                    print(path, name, os.getxattr(path, name))
' | LC_ALL=C sort
"""

UNTOLD = ["/tmp"] if OCI_RUNTIME == "runsc" else []
"""Folders whose time is not compared: bash keeps a here-document in a file of /tmp where pipes are small."""

FOUND = (
    "declare -A none; declare -a many; declare -i number; declare -x later; declare -r never; declare -u upper",
    "o=AbC; declare -l o; p=1+2; declare -ix p; declare -A q=([a]=Ab); declare -ru q; declare -c s=a; s=$'a\nB'",
    "trap 'x=failed' ERR; trap $'echo a\necho b' USR2; trap : DEBUG RETURN; set -E",
    "[[ 'a-b' =~ (.)-(.) ]]; enable -n test",
    "HISTTIMEFORMAT='%F '; set -o history; history -s $'a\nb'",
    """mkdir -p $'/w/a\nb\n'; cd $'/w/a\nb\n'; pushd -n '/w/c d' > /dev/null""",
    """python3 -c 'import os; os.setxattr("/w", "user.a=b%3D", b"v"); os.setxattr("/w/deep", "user.é", b"")'""",
    "declare -A keys=([1e100]=1 [0]=2); table=x; declare -A table; for n in {1..20}; do table[k$n]=$n; done",
    "declare -A grown; for n in {1..2050}; do grown[$n]=$n; done; unset 'grown[7]'",
    "declare -A fixed=([1e100]= [0]=); readonly fixed",
    r"""trap $'x\' SIGHUP\ntrap -- d' USR1; trap "it's" URG; trap 'a\\' WINCH""",
    "shopt -s extdebug; set +T; shopt -s nocasematch localvar_inherit; declare -a A=(1 2)",
    "BASH_COMPAT=5.1; alias builtin='echo no'",
    """k() { coproc cat; coproc N { cat; }; coproc (cat); }; l() { echo 'coproc COPROC x'; }; declare -fx k""",
    "function x[y { :; }; ulimit -SR 100; IGNOREEOF=3",
)
"""What a copy once lacked or had otherwise."""
COUNTED = "x=$RANDOM$SRANDOM$EPOCHSECONDS$BASHPID; x=3"
GONE = "mkdir -p /w/go/ne; cd /w/go/ne; rm -r /w/go"

name = st.sampled_from(
    ["a", "b", "c d", "-e", "é", "$x", "deep/er", "deep/a", "link", "*", "n\nl\n", "\\", "l" * 200 + "/" + "m" * 200]
)
place = st.sampled_from(["/w", "/w/deep", "/etc", "/opt", "/usr/share", "/tmp", "/dev/shm", "/root"])
value = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


def quoted(text: str) -> str:
    """A bash word."""
    return "'" + text.replace("'", "'\\''") + "'"


variable = st.sampled_from(["v", "w", "_x", "LONGER_1"])
path = st.builds(lambda folder, leaf: quoted(f"{folder}/{leaf}"), place, name)
word = value.map(quoted)
ACTIONS = st.one_of(
    st.builds(lambda p, w: f'mkdir -p "$(dirname -- {p})"; printf %s {w} > {p}', path, word),
    st.builds(lambda p, w: f"printf %s {w} >> {p}", path, word),
    st.builds(lambda p: f"rm -rf -- {p}", path),
    st.builds(lambda p, q: f"mv -f -- {p} {q}", path, path),
    st.builds(lambda p, q: f"cp -a -- {p} {q}", path, path),
    st.builds(lambda p, q: f"ln -f -- {p} {q}", path, path),
    st.builds(lambda p, w: f"ln -sfn -- {w} {p}", path, word),
    st.builds(lambda p: f"rm -rf -- {p}; mkdir -p -- {p}; touch -- {p}/inside", path),
    st.builds(lambda p: f"mkfifo -- {p}", path),
    st.builds(lambda p, m: f"chmod {m:o} -- {p}", path, st.integers(0, 0o7777)),
    st.builds(lambda p, u: f"chown -h {u}:{u} -- {p}", path, st.integers(0, 4_000_000)),
    st.builds(lambda p, t: f"touch -hd @{t}.123456789 -- {p}", path, st.integers(-1_000_000_000, 4_000_000_000)),
    st.builds(
        lambda p, k, v: f"""python3 -c 'import os, sys; os.setxattr(*map(os.fsencode, sys.argv[1:]))' {p} {k} {v}""",
        path,
        st.sampled_from(["user.k", "user.=", "user.%41", quoted("user.a b\n")]),
        word,
    ),
    st.builds(lambda p, w: f"mkdir -p -- {p}; cd -- {p}; echo {w} > file", path, word),
    st.builds(lambda v, w: f"{v}={w}", variable, word),
    st.builds(lambda v, w, u: f"declare -a {v}=({w} [7]={u}); export {v}", variable, word, word),
    st.builds(lambda v, k, w: f"declare -A {v}; key={k}; {v}[$key]={w}", variable, word, word),
    st.builds(lambda a, v: f"declare {a} {v}", st.sampled_from(["-i", "-l", "-u", "-x", "-t", "-a", "-A"]), variable),
    st.builds(lambda v: f"unset {v}", variable),
    st.builds(lambda v, w, u: f"{v}() {{ local x={w}; printf '%s\\n' \"$x\" {u} $(echo {w}); }}", variable, word, word),
    st.builds(lambda v, w: f"alias {v}={w}", variable, word),
    st.builds(lambda w, s: f"trap -- {w} {s}", word, st.sampled_from(["USR1", "USR2", "WINCH", "EXIT"])),
    st.builds(lambda w, u: f"set -- {w} {u}; [[ {w} =~ (.)(.*) ]]", word, word),
    st.builds(
        lambda f, n: f"ulimit -S{f} {n}", st.sampled_from(["c", "f", "i", "l", "n", "q", "t"]), st.integers(100, 300)
    ),
    st.builds(lambda p: f"truncate -s 3M -- {p}; printf x >> {p}", path),
    st.builds(lambda p: f"mkdir -p -- {p}; for i in {{1..300}}; do echo $i > {p}/$i; done", path),
    st.sampled_from(
        [
            "rm -rf /opt; mkdir /opt; touch /opt/new",
            "mv /usr/share /usr/shared; mkdir /usr/share",
            "rm -rf /etc/profile.d; ln -s /tmp /etc/profile.d",
            "rm -rf /usr/share/doc /var/backups; rm -f /etc/issue; mkdir /etc/issue",
            "cd /w && git init -q . 2> /dev/null; git -C /w add -A",
            "cd /w && GIT_COMMITTER_DATE=@1 git -c user.name=a -c user.email=a@b commit -qm x --date=@1 --allow-empty",
            "cd /w/deep 2> /dev/null || cd /tmp",
            "mkdir -p /w/gone; cd /w/gone; rmdir /w/gone",
            GONE,
            COUNTED,
            "pushd /usr > /dev/null; pushd /etc > /dev/null",
            "popd > /dev/null",
            'f() { git log; local -A m=([1]=2); cat <<< "$1"; }; export -f f',
            'g-h() { case $1 in @(a|b)) echo "$1";; esac; }',
            "unset -f f",
            "declare -A map=([a]=1 ['b c']=$'\\n\\t' [é]=3); declare -a list=(1 '2 3' [7]=x)",
            "declare -i int=5; declare -l low=ABC; declare -t traced=1",
            "declare -n ref=list; declare -r ro=1; declare -x ex='\"$`\\\\'",
            "unset HOME PATH 2> /dev/null; PATH=/usr/bin:/bin",
            "alias ll='ls -l' git='git -P' 'a.b=c'; unalias git",
            "set -u; set -o pipefail; set -f; set -C",
            "set +u; set +f; set -k; shopt -s extglob nullglob dotglob globstar",
            "shopt -u expand_aliases checkwinsize; shopt -s nocasematch",
            "trap 'echo bye' EXIT; trap 'echo \"int\n\"' INT; trap '' HUP",
            "trap - EXIT; trap 'x=$((x+1))' USR1",
            "umask 027; ulimit -Sn 256; ulimit -Hn 1024; ulimit -c 0",
            "set -- 'a b' '' $'c\\nd'",
            "IFS=:; x=$((RANDOM * 0 + 3)); readonly IFS",
            "set -o history; echo one; history -s 'a  b'",
            *FOUND,
            "none[k]=1; many[2]=a; number=2+3; later=1; upper=abc; declare -p none many number later upper",
            "h() { if cat <<A && cat <<'B' | cat; then :; fi; }\na $x $(echo b)\nA\n'b'\nB\ndeclare -ft h",
            "i() ( for ((n = 0; n < 2; n++)); do case $n in 0) ;;& *) echo $'\\t' >&2 ;; esac; done; time :; )",
            "j() { trap 'echo r' RETURN; select x in a; do break; done < /dev/null; coproc cat; }; readonly -f j",
            "a.b() { [[ $1 == +(a|b) ]] || { ! :; }; }; é() { echo <(:) >/dev/null 2>&1; }",
            "set -o posix; set -P; shopt -s compat44; BASH_COMPAT=4.2",
            "set -o posix; shopt -u inherit_errexit shift_verbose; alias builtin='echo no'",
            "shopt -s extdebug localvar_inherit; set -E; set +T",
            "table=1; declare -A table; for n in {1..300}; do table[$n$n]=$n; done; declare -p table",
            r"trap $'a\' SIGHUP\ntrap -- b' USR1 URG",
            "HISTSIZE=3; set +o history",
            "trap 'echo error' ERR; trap : DEBUG",
            "ln /etc/passwd /w/passwd; echo >> /etc/passwd; mv /etc/shells /w/deep/",
            "git -C /w checkout -qb other; git -C /w mv a moved; git -C /w worktree add -q /opt/tree",
            "mkdir -p /w/many; for i in {1..5000}; do : > /w/many/$i; done",
            "mkdir -p /w/d1; echo x > /w/d1/f; ln -f /w/d1/f /w/h; mv -T /w/d1 /w/d2; touch -d @1.000000001 /w/d2",
            r"printf y > $'/w/\xff\xfe\x01'; mkdir -p /opt$(printf '/%050d' {1..60})",
            "false",
            "(exit 7)",
            'python3 -c \'import os; os.setxattr("/w", b"user.k", b"v\\x00")\' 2> /dev/null; true',
            "echo kept > /tmp/file; chmod 000 /tmp/file; chown 1000 /tmp/file",
        ]
    ),
)

PACKAGE = """mkdir -p /tmp/p/DEBIAN /tmp/p/opt/p; echo x > /tmp/p/opt/p/x; chmod -R 755 /tmp/p
printf '%s\\n' 'Package: p' 'Version: 1' 'Architecture: all' 'Maintainer: a' 'Description: d' > /tmp/p/DEBIAN/control
dpkg-deb -b /tmp/p /tmp/p.deb > /dev/null && dpkg -i /tmp/p.deb > /dev/null"""
INSTALLS = st.sampled_from([PACKAGE, "dpkg -r p", "python3 -m venv --without-pip /opt/venv", "git -C /w gc -q"])
"""What writes the time into files, so that it would differ after a copy."""


async def checkpoint_of(inspector: ContainerInspector, sandbox: BashSandbox, store: Checkpoints) -> Checkpoint:
    """A stored checkpoint of the sandbox as it is."""
    async with store.writer() as writer:
        left_out = await capture(sandbox, inspector, writer, timeout_s=SLOW_S)
        return await store.keep(writer, Checkpoint("1", 1, "image", 0.0, left_out=left_out))


async def said(sandbox: BashSandbox, command: str, timeout_s: float = ACTION_S) -> tuple[str, int, str]:
    """Output, status and folder of a command in the shell."""
    result = await sandbox.shell.run(command, timeout_s=timeout_s)
    return result.output.text(), result.exit_code, result.cwd


async def looks(sandbox: BashSandbox, *, times: bool) -> list[str]:
    """Shell and files. The files are read beside the shell, whose state may keep programs from running."""
    shell = (await said(sandbox, SHELL, SLOW_S))[0]
    files = await sandbox.exec(["bash", "-c", TREE], timeout_s=SLOW_S, keep_bytes=16 << 20)
    assert files.exit_code == 0 and not files.stdout.dropped, files
    tree = files.stdout.text()
    for folder in UNTOLD:
        tree = re.sub(rf"(?m)^({folder}\|d\|.*)\|[0-9.]+$", r"\1", tree)
    if not times:
        tree = re.sub(r"\|-?\d+\.\d{10}", "", tree)
        tree = re.sub(r"(?m)^\d+ (\d+ \S*/\.git/index)$", r"\1", tree)  # git writes times into it
    return [*shell.splitlines(), *tree.splitlines()]


async def compared(original: BashSandbox, copy: BashSandbox, *, times: bool) -> None:
    """Both look alike."""
    now, then = await looks(original, times=times), await looks(copy, times=times)
    assert sorted(set(now) - set(then)) == sorted(set(then) - set(now)), "the original's, and the copy's"


class Inside:
    """A host that shows no files, and perhaps what was changed."""

    def __init__(self, inspector: ContainerInspector, *, lists: bool) -> None:
        self.inspect = inspector.inspect
        self._changed = inspector.changed_paths if lists else None

    async def changed_paths(self, container_id: str) -> ChangedPaths | None:
        """See `ContainerInspector.changed_paths`."""
        return await self._changed(container_id) if self._changed else None

    async def tree(self, container_id: str) -> Tree:
        """See `ContainerInspector.tree`."""
        raise HostAccessFailed("a test")


class Way(StrEnum):
    """Where the files are read or written."""

    HOST = "host"
    LISTED = "listed"
    """Inside, from a list of the host."""
    WALKED = "walked"

    def of(self, inspector: ContainerInspector) -> ContainerInspector:
        """As this way is given what there is outside."""
        return inspector if self is Way.HOST else cast(ContainerInspector, Inside(inspector, lists=self is Way.LISTED))


@pytest.mark.timeout((120 + 20 * EXAMPLES) * SLOWER)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="SANDBOX_TEST_FORKS" not in os.environ,  # which would not look at --hypothesis-seed
    suppress_health_check=list(HealthCheck),
    phases=PHASES,
)
@given(
    before=st.lists(ACTIONS | INSTALLS, max_size=12),
    after=st.lists(ACTIONS, max_size=4),
    taken=st.sampled_from(Way),
    put=st.sampled_from([Way.HOST, Way.WALKED]),
)
@example(
    before=[COUNTED, *FOUND],
    after=[
        "none[k]=1; declare -p none; false; echo $x",
        "for k in {a..z} {1..9}{1..9}; do table[$k]=; done; echo ${!table[@]}",
    ],
    taken=Way.HOST,
    put=Way.WALKED,
)
@example(before=[GONE], after=["pwd; cd ..; pwd"], taken=Way.HOST, put=Way.HOST)
async def test_a_copy_is_the_same_bit_for_bit(
    runtime: DockerRuntime, tmp_path: Path, before: list[str], after: list[str], taken: Way, put: Way
) -> None:
    """Something of a sandbox is not in its checkpoint, or comes out of it changed; or taking it changes the sandbox."""
    note(f"before = {before!r}\nafter = {after!r}\n{taken} {put}")
    store = Checkpoints(tmp_path, most_bytes=1 << 30)
    await store.open()
    original, copy = await runtime.create(spec()), await runtime.create(spec())
    try:
        await said(original, "mkdir -p /w/deep; cd /w")
        for action in before:
            await said(original, action)
        checkpoint = await checkpoint_of(taken.of(runtime.inspector), original, store)
        await restore(copy, checkpoint, store, timeout_s=SLOW_S, inspector=put.of(runtime.inspector))
        assert await said(original, "echo $?") == await said(copy, "echo $?")
        await compared(original, copy, times=True)
        for action in after:
            assert await said(original, action) == await said(copy, action), action
        await compared(original, copy, times=False)
    finally:
        await runtime.remove(original.container_id)
        await runtime.remove(copy.container_id)


async def test_a_checkpoint_leaves_the_shell_as_it_was(
    runtime: DockerRuntime, sandbox: BashSandbox, tmp_path: Path
) -> None:
    """The policy's last command is gone from its history, or ours are in it; or its status or arguments are others."""
    store = Checkpoints(tmp_path, most_bytes=1 << 30)
    await store.open()
    await said(sandbox, "set -o history; set -- a b")
    await said(sandbox, "echo one; (exit 3)")
    await checkpoint_of(runtime.inspector, sandbox, store)
    status, _, _ = await said(sandbox, "echo $? $* ${!__sb_*}")
    assert status.split() == ["3", "a", "b", "__sb_i", "__sb_n", "__sb_saves"], status
    history, _, _ = await said(sandbox, "history")
    assert re.findall("echo one|sandbox/save", history) == ["echo one"], history


@pytest.mark.parametrize("file", ["/tmp/log", "/dev/null"])
async def test_a_redirected_stderr_is_told(
    runtime: DockerRuntime, sandbox: BashSandbox, tmp_path: Path, file: str
) -> None:
    """A copy shows errors that its original wrote to a file, without a word; or another descriptor is told."""
    store = Checkpoints(tmp_path, most_bytes=1 << 30)
    await store.open()
    await said(sandbox, f"exec 2> {file}")
    made = await checkpoint_of(runtime.inspector, sandbox, store)
    assert made.left_out == ("file descriptor 2 of the shell",)


@pytest.mark.parametrize("way", [Way.HOST, Way.WALKED])
async def test_a_volume_is_told(runtime: DockerRuntime, tmp_path: Path, way: Way) -> None:
    """The image declares a volume: what was written there is in no copy, without a word."""
    store = Checkpoints(tmp_path / "store", most_bytes=1 << 30)
    (tmp_path / "volume").mkdir()
    await store.open()
    sandbox = await runtime.create(spec(mounts={str(tmp_path / "volume"): "/var/lib/a b"}))
    try:
        made = await checkpoint_of(way.of(runtime.inspector), sandbox, store)
    finally:
        await runtime.remove(sandbox.container_id)
    assert made.left_out == ("the files of the volume /var/lib/a b",)


async def test_a_shell_that_cannot_be_read_back_is_told(
    runtime: DockerRuntime, sandbox: BashSandbox, tmp_path: Path
) -> None:
    """Bash does not read what it has printed itself: the copy lacks everything after it, without a word."""
    store = Checkpoints(tmp_path, most_bytes=1 << 30)
    await store.open()
    await said(sandbox, "set -v")  # of which the last line of the output is not kept
    made = await checkpoint_of(runtime.inspector, sandbox, store)
    assert await restore(sandbox, made, store, timeout_s=SLOW_S, inspector=runtime.inspector) == ()
    script = b"".join([block async for block in store.read(made, Part.SHELL)])
    async with store.writer() as writer:
        for part in (Part.FILES, Part.FOLDERS, Part.CONTENTS):
            async for block in store.read(made, part):
                await writer.add(part, block)
        await writer.add(Part.SHELL, script.replace(b"builtin unalias -a", b"x[y () { :; }", 1))
        broken = await store.keep(writer, Checkpoint("1", 2, "image", 0.0))
    lacks = await restore(sandbox, broken, store, timeout_s=SLOW_S, inspector=runtime.inspector)
    assert lacks == ("a part of the shell's state",)


async def test_paths_that_no_program_can_open(runtime: DockerRuntime, sandbox: BashSandbox, tmp_path: Path) -> None:
    """A copy silently lacks what lies deeper than a path can say."""
    store = Checkpoints(tmp_path, most_bytes=1 << 30)
    await store.open()
    await said(
        sandbox, f"mkdir /w; cd /w; for n in {{1..20}}; do mkdir {'n' * 250} && cd {'n' * 250}; done; echo x > x; cd /"
    )
    with pytest.raises(NotForkable, match="a path has more than 4,095 bytes"):
        await checkpoint_of(runtime.inspector, sandbox, store)


async def test_a_host_sees_the_containers_files_and_programs(runtime: DockerRuntime, sandbox: BashSandbox) -> None:
    """A checkpoint walks the tree though it need not, misses a program, or reads a former process's files."""
    if OCI_RUNTIME == "runsc" or os.geteuid():
        with pytest.raises(HostAccessFailed):
            await runtime.inspector.tree(sandbox.container_id)
        return
    for _ in range(2):
        await said(
            sandbox, "sleep 300 & mkdir -p /w; ln -sfn / /w/out; echo mine > /w/mine; echo own > /run/sandbox/own"
        )
        tree = await runtime.inspector.tree(sandbox.container_id)
        try:
            assert tree.programs() == ["sleep"]
            mine = tree.files.read(b"/w/mine")
            assert os.read(mine, 9) == b"mine\n"
            os.close(mine)
            assert {name for name, _ in tree.upper.entries(b"/w")} == {b"out", b"mine"}
            assert tree.own.load(b"own", 10) == b"own\n"
            for path in (b"/w/out/etc/passwd", b"/proc/1/environ", b"/run/sandbox/own"):
                with pytest.raises(OSError):
                    tree.files.read(path)
        finally:
            tree.close()
        await sandbox.restart()  # its first process is another one then
