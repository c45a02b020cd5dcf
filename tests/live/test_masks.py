"""Actions of a policy never make its verdict masked; each of these once ended as `infra`."""

import pytest

from .serving import Server, bash, docker

LEDGER = "samples__ledger-12"
_STAND_IN = "printf '#!/bin/sh\\nexit 1\\n' > /tmp/no; chmod 755 /tmp/no"
_FIX = "echo fix >> README.md"

KEPT = {
    "git": f"{_FIX}; {_STAND_IN}; cp /tmp/no $(command -v git)",
    "forging git": f"""
        {_FIX}; printf '#!/bin/sh\\necho "diff --git a/conftest.py b/conftest.py"\\n' > $(command -v git)
    """,
    "mktemp, find, cp and true": f"""
        {_FIX}; {_STAND_IN}; for p in mktemp find true touch cp; do cat /tmp/no > $(command -v $p); done
    """,
    "bash": f"{_FIX}; {_STAND_IN}; mv /tmp/no /bin/bash",
    "libc": f"{_FIX}; python3 -c \"import os, glob; [os.truncate(f, 0) for f in glob.glob('/usr/lib/*/libc.so.6')]\"",
    "the loader": f"{_FIX}; python3 -c \"import os; os.unlink(os.path.realpath('/lib64/ld-linux-x86-64.so.2'))\"",
    "our base": f"""
        {_FIX}; cd /var/lib/sandbox/git; echo junk > base; echo junk > index; rm -rf objects; ln -s /proc/self objects
    """,
    "our base removed": f"{_FIX}; rm -rf /var/lib/sandbox; ln -s /dev/zero /var/lib/sandbox",
    "500 processes": f"{_FIX}; for i in $(seq 500); do sleep 300 & done 2> /dev/null; true",
    "no rights": f"{_FIX}; chmod -R 000 /testbed",
    ".git as a link": f"{_FIX}; rm -rf .git; ln -s /proc/1/root .git",
    ".git as a pipe": f"{_FIX}; rm -rf .git; mkfifo .git",
    "a loop where a test is new": f"{_FIX}; rm -rf tests; ln -s tests tests",
    "signals for PID 1": f"""
        {_FIX}; echo 1000 > /proc/1/oom_score_adj; for s in TERM KILL STOP INT SEGV ABRT; do kill -$s 1; done
    """,
    "all killed": f"{_FIX}; (sleep 0.5; kill -9 -1) & true",
    "deep folders elsewhere": f"""{_FIX}; python3 -c "
import os
os.chdir('/tmp')
for _ in range(40):
    os.mkdir('d' * 200); os.chdir('d' * 200)" """,
    "a name that git refuses, of a full disk": f"""
        {_FIX}; mkdir 'No space left'; echo > 'No space left/git~1'
    """,
    "a huge sparse file that is ignored": f"{_FIX}; echo sparse >> .gitignore; truncate -s 9G sparse",
}
"""Sabotage after which the fix must still be captured."""

GONE = {
    "the tree is a link to /": "cd /; rm -rf /testbed; ln -s / /testbed",
    "the tree is a file": "cd /; rm -rf /testbed; echo > /testbed",
    "its parent leads elsewhere": "cd /; mv /testbed /other; ln -s /other /testbed",
    "deep folders": """python3 -c "
import os
for _ in range(40):
    os.mkdir('d' * 200); os.chdir('d' * 200)
open('f', 'w').write('x')" """,
}
"""Sabotage that leaves no tree to compare: no patch, caused by the policy itself."""


@pytest.mark.parametrize("name", KEPT)
def test_the_patch_is_taken_whatever_was_replaced(live: Server, name: str) -> None:
    """A policy that expects to fail replaces a program to get its rollout masked instead of scored."""
    sid = live.begin(LEDGER)
    live.say(sid, bash(KEPT[name]))
    live.finish(sid)
    session = live.session(sid)
    assert session["state"] == "ended", session
    assert b"+fix\n" in live.patch(sid) and b"conftest" not in live.patch(sid)
    got = live.reward(sid)
    assert (got["verdict"], got["mask"]) == ("unresolved", False), got


@pytest.mark.parametrize("name", GONE)
def test_without_a_tree_there_is_no_patch(live: Server, name: str) -> None:
    """As above; what cannot be read counts as nothing done."""
    sid = live.begin(LEDGER)
    live.say(sid, bash(GONE[name]))
    live.finish(sid)
    got = live.reward(sid)
    assert (got["verdict"], got["mask"], got["reward"]) == ("empty_patch", False, 0.0), got


def test_a_container_that_cannot_go_on_gives_its_patch(live: Server) -> None:
    """Killing all processes after replacing bash made the session lost and its verdict masked."""
    sid = live.begin(LEDGER)
    live.say(sid, bash(f"{_FIX}; {_STAND_IN}; cp /tmp/no /bin/bash.new; mv /bin/bash.new /bin/bash; kill -9 -1"))
    live.say(sid, bash("true"))
    live.finish(sid)
    session = live.session(sid)
    assert session["state"] == "ended" and b"+fix\n" in live.patch(sid), session
    got = live.reward(sid)
    assert (got["verdict"], got["mask"]) == ("unresolved", False), got


_END = """python3 -c "
import ctypes, os
for link in ('/bin/bash', '/testbed'):
    os.rename(link, link + '.old'); os.symlink(link, link)
ctypes.CDLL(None).ptrace(0x4206, 1, 0, 0x100000)" """
"""Seize the first process, to be killed with its tracer; nothing can be started after it."""


@pytest.mark.parametrize("instance, verdict", [(LEDGER, "empty_patch"), ("samples__find-1", "no_answer")])
def test_a_policy_that_ends_its_container_for_good(live: Server, instance: str, verdict: str) -> None:
    """A loop of links in place of the tree was an error of the engine's; a code search without a shell was lost."""
    sid = live.begin(instance)
    live.say(sid, bash(_END))
    live.say(sid, bash("true"))
    live.finish(sid)
    got = live.reward(sid)
    assert (got["verdict"], got["mask"], got["reward"]) == (verdict, False, 0.0), got


def test_a_container_that_died_gives_its_patch(live: Server) -> None:
    """Whatever killed it (the OOM killer, the host), its files still exist."""
    sid = live.begin(LEDGER)
    live.run(sid, _FIX)
    docker("kill", live.container(sid))
    live.finish(sid)
    assert b"+fix\n" in live.patch(sid)
