"""The recorded observations on a real sandbox: fixture `sandbox`, with its shell, as root, with python3."""

from sandbox_server.actions import registry
from sandbox_server.actions.base import Call
from tests.golden.play import context, play_editor, play_shell


async def test_the_editor_script_on_real_files(shared):
    """Files, `find` or their errors in the sandbox are not what the texts were made for."""
    made = await shared.exec(["mkdir", "-p", "/workspace/ed/pkg", "/workspace/ed/.git"], timeout_s=10)
    assert made.exit_code == 0
    for call, seen, recorded in await play_editor(shared):
        assert seen == recorded, call


async def test_the_shell_script_in_a_real_shell(shared):
    """The shell's output, exit code, cwd or user does not come as BashSession showed it."""
    # A task image has `python`, which every recorded prompt names; a bare Debian has not.
    prepare = "type -P python || ln -s python3 /usr/bin/python; mkdir -p /workspace/repo && cd /workspace/repo"
    assert (await shared.shell.run(prepare, timeout_s=10)).exit_code == 0
    for command, seen, recorded in await play_shell(shared):
        assert seen == recorded, command
    unfinished = await registry.tools()["execute_bash"].run(
        Call("execute_bash", {"command": "if true; then"}), context(shared)
    )
    assert "syntax error" in unfinished.text and unfinished.exit_code not in (0, 130)
    ended = await registry.tools()["execute_bash"].run(Call("execute_bash", {"command": "exit 3"}), context(shared))
    assert "[The shell exited with code 3. A new shell was started in " in ended.text
    assert ended.text.endswith("\n[Command finished with exit code 3]")
