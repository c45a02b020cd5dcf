"""Checks by the real E2B SDK against a server; a script that runs with any release of the SDK, in its environment.

    E2B_API_URL=... E2B_SANDBOX_URL=... E2B_API_KEY=... python checks.py [NAME...]

prints a line of JSON per check: name, whether it passed, and the error. The separate check `restart` prints "ready",
waits for a line, and continues after the server was killed and started again.
"""

import asyncio
import json
import os
import sys
import threading
import time
import traceback
import urllib.error
import urllib.request

import e2b
import file_checks
from begun_box import MIB, WHOLE, begin, raises, running, wait_for
from e2b import AsyncSandbox, CommandExitException, NotFoundException, Sandbox, SandboxException, TimeoutException
from e2b.exceptions import AuthenticationException, InvalidArgumentException
from e2b.sandbox.commands.command_handle import PtySize

# ---- commands


def check_output_and_exit_code(box):
    done = box.commands.run("echo out; echo err >&2")
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n", "err\n", 0), done
    failed = raises(CommandExitException, lambda: box.commands.run("echo no; exit 7"))
    assert (failed.exit_code, failed.stdout) == (7, "no\n"), failed


def check_streams_while_running(box):
    seen = []
    box.commands.run("echo a; sleep 2; echo b", on_stdout=lambda text: seen.append((text, time.monotonic())))
    assert "".join(text for text, _ in seen) == "a\nb\n", seen
    assert seen[-1][1] - seen[0][1] > 0.3, seen


def check_user_cwd_environment(box):
    who = box.commands.run("id -un; echo $HOME $USER; pwd; echo $FOO", user="agent", envs={"FOO": "a 'b' \n c"})
    assert who.stdout == "agent\n/home/agent agent\n/home/agent\na b c\n".replace("a b c", "a 'b' c"), who
    assert box.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    box.files.make_dir("/home/agent/deep/er", user="agent")
    assert box.commands.run("pwd", cwd="deep", user="agent").stdout == "/home/agent/deep\n"
    raises(InvalidArgumentException, lambda: box.commands.run("pwd", cwd="/nowhere"))
    raises(AuthenticationException, lambda: box.commands.run("id", user="nobody-here"))


def check_environment_of_the_box(_):
    box = begin(envs={"FOO": "of the box", "BAR": "1"})
    try:
        assert box.commands.run("echo $FOO $BAR", envs={"BAR": "2"}).stdout == "of the box 2\n"
        told = box.commands.run("echo $E2B_SANDBOX $E2B_SANDBOX_ID $E2B_TEMPLATE_ID").stdout
        assert told == f"true {box.sandbox_id} base\n", told
    finally:
        box.kill()


def check_path_of_the_image(box):
    assert box.commands.run("only-on-the-images-path").stdout == "found\n"


def check_megabytes_of_output(box):
    size = (10 if WHOLE else 1) * MIB
    done = box.commands.run(f"head -c {size} /dev/zero | tr '\\0' x", timeout=60)
    assert len(done.stdout) == size, len(done.stdout)


def check_bytes_that_are_no_text(box):
    assert box.commands.run("printf 'a\\xffb\\xe2'").stdout == "a\ufffdb\ufffd"
    if not hasattr(box.commands, "close_stdin"):
        return  # older releases decode each piece separately
    letters = box.commands.run('python3 -c \'print("\\u20ac" * 50000, end="")\'').stdout
    assert letters == "€" * 50000, len(letters)  # cut between chunks, a character would be two replacements


def check_timeout_kills_the_tree(box):
    began = time.monotonic()
    raises(TimeoutException, lambda: box.commands.run("(setsid sleep 4711 &) ; sleep 4711", timeout=2))
    assert 1.5 < time.monotonic() - began < 60, time.monotonic() - began
    wait_for(lambda: running(box, "sleep 4711") == 0)


def check_no_timeout(box):
    assert box.commands.run("sleep 1; echo done", timeout=0).stdout == "done\n"


def check_a_child_that_holds_the_pipes(box):
    began = time.monotonic()
    child = box.commands.run("sleep 4714 & echo $!", timeout=30).stdout.strip()
    assert time.monotonic() - began < 25, time.monotonic() - began
    assert running(box, "sleep 4714") == 1
    box.commands.run(f"kill {child}")


def check_background(box):
    handle = box.commands.run("sleep 0.5; echo late; exit 3", background=True)
    assert handle.pid in [running.pid for running in box.commands.list()]
    failed = raises(CommandExitException, handle.wait)
    assert (failed.exit_code, failed.stdout) == (3, "late\n")
    assert handle.pid not in [running.pid for running in box.commands.list()]


def check_disconnect_and_connect(box):
    handle = box.commands.run("for i in 1 2 3 4 5 6 7 8; do sleep 0.25; echo $i; done; exit 5", background=True)
    handle.disconnect()
    time.sleep(0.4)
    again = box.commands.connect(handle.pid)
    failed = raises(CommandExitException, again.wait)
    assert failed.exit_code == 5, failed
    assert failed.stdout.endswith("7\n8\n"), failed.stdout
    late = box.commands.connect(handle.pid)  # the result is kept for a while
    assert raises(CommandExitException, late.wait).exit_code == 5
    raises(NotFoundException, lambda: box.commands.connect(999999))


def check_kill(box):
    handle = box.commands.run("sleep 4712", background=True)
    assert box.commands.kill(handle.pid)
    assert raises(CommandExitException, handle.wait).exit_code != 0
    assert not box.commands.kill(handle.pid)
    assert not box.commands.kill(999999)
    raises(CommandExitException, lambda: box.commands.run(f"kill -0 {handle.pid}"))


def check_large_stdin(box):
    handle = box.commands.run("head -c 5242880 | wc -c", background=True, stdin=True)
    box.commands.send_stdin(handle.pid, "x" * (5 * MIB))
    assert handle.wait().stdout == "5242880\n"


def check_stdin(box):
    handle = box.commands.run("cat", background=True, stdin=True)
    box.commands.send_stdin(handle.pid, "Hello,\nWörld!")
    for stdout, _, _ in handle:
        assert stdout == "Hello,\nWörld!", stdout
        break
    if hasattr(handle, "close_stdin"):
        handle.close_stdin()
        assert handle.wait().exit_code == 0
    else:
        handle.kill()
    # without stdin, what reads it ends
    assert box.commands.run("cat; echo end", timeout=10).stdout == "end\n"


def check_input_that_nobody_reads(box):
    """The program believes that its input has arrived."""
    handle = box.commands.run("sleep 4713", background=True, stdin=False)
    raised = raises(SandboxException, lambda: box.commands.send_stdin(handle.pid, "lost"))
    assert "stdin not enabled or closed" in str(raised)
    handle.kill()
    if hasattr(handle, "close_stdin"):
        handle = box.commands.run("cat; sleep 4714", background=True, stdin=True)
        handle.close_stdin()
        raises(SandboxException, lambda: handle.send_stdin("lost"))
        handle.kill()


def check_many_in_parallel(_):
    count = 100 if WHOLE else 10

    async def run():
        box = await AsyncSandbox.create("base", timeout=300)
        try:
            began = time.monotonic()
            done = await asyncio.gather(*[box.commands.run(f"echo {n}; sleep 1", timeout=200) for n in range(count)])
            assert [result.stdout for result in done] == [f"{n}\n" for n in range(count)]
            assert time.monotonic() - began < 90, time.monotonic() - began
        finally:
            await box.kill()

    asyncio.run(run())


def check_async(_):
    async def run():
        box = await AsyncSandbox.create("base", timeout=300)
        try:
            seen = []
            handle = await box.commands.run("echo a; sleep 0.2; echo b >&2", background=True, on_stdout=seen.append)
            result = await handle.wait()
            assert (result.stdout, result.stderr, seen) == ("a\n", "b\n", ["a\n"]), (result, seen)
            await box.files.write("f", b"\0\1\2")
            assert bytes(await box.files.read("f", format="bytes")) == b"\0\1\2"
            try:
                await box.commands.run("sleep 9", timeout=1)
            except TimeoutException:
                pass
            else:
                raise AssertionError("no TimeoutException")
            got = bytearray()
            terminal = await box.pty.create(PtySize(rows=24, cols=80), on_data=got.extend)
            await box.pty.send_stdin(terminal.pid, b"echo $((40+2)); exit\n")
            assert (await terminal.wait()).exit_code == 0
            assert b"42" in got, got
        finally:
            await box.kill()

    asyncio.run(run())


# ---- terminals


def check_terminal(box):
    terminal = box.pty.create(PtySize(rows=24, cols=80), envs={"ABC": "123"}, cwd="/")
    box.pty.send_stdin(terminal.pid, b"stty size; tty; echo $ABC; pwd\n")
    box.pty.resize(terminal.pid, PtySize(rows=30, cols=100))
    time.sleep(0.5)
    box.pty.send_stdin(terminal.pid, b"stty size; exit\n")
    got = bytearray()
    assert terminal.wait(on_pty=got.extend).exit_code == 0
    text = got.decode()
    assert "24 80" in text or "30 100" in text, text
    assert "30 100" in text and "/dev/pts/" in text and "123" in text, text


def check_terminal_kill(box):
    terminal = box.pty.create(PtySize(rows=24, cols=80))
    assert box.pty.kill(terminal.pid)
    raises(CommandExitException, lambda: box.commands.run(f"kill -0 {terminal.pid}"))


# ---- the box


def check_life(_):
    box = begin()
    assert box.is_running()
    assert Sandbox.connect(box.sandbox_id).commands.run("echo again").stdout == "again\n"
    running = box.commands.run("sleep 60", background=True)
    outcome = []

    def follow():
        try:
            outcome.append(running.wait())
        except Exception as error:  # noqa: BLE001 - which one it is, is what is asked
            outcome.append(error)

    follower = threading.Thread(target=follow)
    follower.start()
    time.sleep(0.3)
    assert box.kill()
    follower.join(20)
    assert not follower.is_alive(), "a command of a killed sandbox never ended"
    assert isinstance(outcome[0], Exception), outcome
    assert not box.is_running()
    assert not box.kill()
    error = raises(Exception, lambda: box.commands.run("true"))
    assert isinstance(error, SandboxException), repr(error)


def check_mcp(_):
    """The client runs the template's own gateway; the server only has to create the box."""
    box = Sandbox.create("base", mcp={"time": {}}, timeout=60)
    try:
        assert box.files.read("/tmp/mcp.json") == '{"time": {}}'
        assert box.files.read("/etc/mcp-gateway/.token", user="root") == box.get_mcp_token() != ""
    finally:
        box.kill()


def check_the_token_is_needed(box):
    stranger = urllib.request.Request(
        os.environ["E2B_SANDBOX_URL"] + "/filesystem.Filesystem/Stat",
        b'{"path":"/"}',
        {"Content-Type": "application/json", "E2b-Sandbox-Id": box.sandbox_id},
    )
    assert raises(urllib.error.HTTPError, lambda: urllib.request.urlopen(stranger)).code == 401


# ---- a restart of the server under running commands


def restart():
    box = begin()
    handle = box.commands.run("sleep 4713; echo end", background=True, timeout=120)
    gated = box.commands.run("until [ -e /tmp/go ]; do sleep 0.1; done; exit 3", background=True, timeout=120)
    outcome = []

    def follow():
        try:
            outcome.append(repr(handle.wait()))
        except Exception as error:  # noqa: BLE001 - which one it is, is what is asked
            outcome.append(type(error).__name__)

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    time.sleep(1)  # after this time a running command is recorded for the next server
    print("ready", flush=True)
    sys.stdin.readline()
    follower.join(30)
    assert box.is_running()
    lives = running(box, "sleep 4713")
    again = box.commands.connect(gated.pid)
    box.files.write("/tmp/go", "")
    unseen = raises(CommandExitException, again.wait)
    print(
        json.dumps(
            {
                "hung": follower.is_alive(),
                "outcome": outcome,
                "lives": lives,
                "unseen": [unseen.exit_code, unseen.error],
                "listed": handle.pid in [running.pid for running in box.commands.list()],
                "killed": box.commands.kill(handle.pid),
                "file": box.files.write("after", "x").path,
            }
        ),
        flush=True,
    )
    time.sleep(0.3)
    print(json.dumps({"left": [running.pid for running in box.commands.list()]}), flush=True)
    box.kill()


def named():
    """Name -> check, of both files."""
    held = {**globals(), **vars(file_checks)}
    return {name[6:]: held[name] for name in held if name.startswith("check_")}


def main(names):
    checks = named()
    box = begin()
    try:
        for name in names:
            began = time.monotonic()
            try:
                checks[name](box)
                wrong = ""
            except Exception:  # noqa: BLE001 - whatever it is, the other checks go on
                wrong = traceback.format_exc(limit=-4)
            print(json.dumps({"name": name, "wrong": wrong, "seconds": round(time.monotonic() - began, 2)}), flush=True)
    finally:
        box.kill()


if __name__ == "__main__":
    if sys.argv[1:] == ["version"]:
        print(getattr(e2b, "__version__", "?"))
    elif sys.argv[1:] == ["restart"]:
        restart()
    else:
        main(sys.argv[1:] or list(named()))
