"""Episodes of a scripted model in the real Uni-Agent: `roll_uni_agent.py < job`, outcomes on stdout.

Runs in veRL's environment, with Uni-Agent's own folder and sandbox_client on PYTHONPATH. The model's endpoint is a real
HTTP server; agent, tools, task runner and registries are Uni-Agent's.
"""

import asyncio
import json
import os
import sys
from types import SimpleNamespace

job = json.load(sys.stdin)
os.environ |= job["environment"]

from aiohttp import web  # noqa: E402  # as below: after the environment is set
from uni_agent.sandbox import SandboxConfig, build_sandbox  # noqa: E402
from verl.utils.import_utils import load_class_from_fqn  # noqa: E402

run_task = load_class_from_fqn("sandbox_client.uni_agent.run_task", description="agent runner")  # as the framework does


def endpoint(turns: list, waits: asyncio.Event):
    """Answers with the script's next turn, by the number of assistant messages so far; blocks forever at WAIT."""

    async def answer(request: web.Request) -> web.Response:
        asked = await request.json()
        seen.append(asked["messages"])
        turn = turns[sum(one["role"] == "assistant" for one in asked["messages"])]
        if turn == "WAIT":
            waits.set()
            await asyncio.sleep(3600)
        calls = [
            {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for n, (name, arguments) in enumerate(turn)
        ]
        message = {"role": "assistant", "content": "" if calls else "Done.", "tool_calls": calls}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return web.json_response({"choices": [choice], "usage": usage})

    seen: list[list[dict]] = []
    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    return app, seen


async def episode(asked: dict) -> dict:
    """Run one episode by the task's runner, as the framework does."""
    waits = asyncio.Event()
    app, seen = endpoint(asked["turns"], waits)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    task = {
        "name": "sandbox",
        "prompt": [{"role": "user", "content": "Mend it."}],
        "metadata": {"instance_id": asked["instance_id"]},
        "sandbox": {"provider": "sandbox_session", "sandbox_kwargs": {"command_timeout_s": job["command_timeout_s"]}},
        "agent": {"name": "react", "max_steps": 8},
    }
    session = SimpleNamespace(base_url=f"http://127.0.0.1:{port}/v1", reward_info_url=None)
    running = asyncio.create_task(
        run_task(session=session, tools_kwargs={"task": task}, raw_prompt=None, sample_index=0, model_name="scripted")
    )
    if "WAIT" in asked["turns"]:
        await waits.wait()
        running.cancel()
    try:
        result = await running
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # an outcome
        return {"error": type(error).__name__, "detail": str(error)}
    finally:
        await runner.cleanup()
    tools = [one["content"] for one in seen[-1] if one["role"] == "tool"] if seen else []
    return {
        "reward": result.reward,
        "accuracy": result.accuracy,
        "finished": result.finished,
        "sid": result.extra_info["sandbox_sid"],
        "tools": tools,
    }


async def files(asked: dict) -> dict:
    """Files and shell of a sandbox without an episode."""
    data = bytes(range(256)) * 700  # 179,200 bytes: several commands each way
    async with build_sandbox(SandboxConfig(**asked)) as sandbox:
        await sandbox.write_file("/tmp/a folder/some file", data)
        back = await sandbox.read_file("/tmp/a folder/some file")
        await sandbox.write_file("/tmp/empty", b"")
        empty = await sandbox.read_file("/tmp/empty")
        try:
            await sandbox.read_file("/tmp/absent")
            absent = ""
        except RuntimeError as error:
            absent = str(error)
        shell = await sandbox.open_shell(cwd="/tmp", env={"GIVEN": "given"})
        await shell.run("cd /; X=1; export Y='a b'; f() { echo $1-$X-$Y-$GIVEN; }; alias g='f alias'; set -o noglob")
        kept = await shell.run("pwd; f *; g\nexit 3", timeout=5)
        failed = await shell.run("false")
        try:
            await shell.run("echo so far; sleep 60", timeout=2)
            cut = ""
        except TimeoutError as error:
            cut = str(error)
        after = await shell.run("pwd; f still")
        late = await sandbox.exec(["sleep", "60"], timeout=1)
        await shell.close()
        return {
            "same": back == data,
            "empty": empty == b"",
            "absent": absent,
            "kept": [kept.stdout, kept.exit_code],
            "failed": failed.exit_code,
            "cut": cut,
            "after": after.stdout,
            "late": late.exit_code,
        }


async def main() -> dict:
    """All episodes at once, then the sandboxes."""
    return {
        "episodes": list(await asyncio.gather(*map(episode, job["episodes"]))),
        "sandboxes": [await files(asked) for asked in job["sandboxes"]],
    }


os.write(1, ("\n" + json.dumps(asyncio.run(main()))).encode())
