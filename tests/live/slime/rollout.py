"""A rollout in the shape of slime's examples/coding_agent_rl, over any class with slime's sandbox contract.

Boot, prepare the workspace, an agent in the container that talks to an adapter on this host, its diff, then a fresh
sandbox that is given the diff and grades it. No model, no CLI: the agent is a script, the adapter says what to change.
Standard library only: it also runs where the E2B SDK is and nothing of this project.
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shlex import quote
from typing import Any

AGENT = """#!/usr/bin/env python3
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request


def ask(messages):
    request = urllib.request.Request(
        os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages",
        json.dumps({"messages": messages}).encode(),
        {"Authorization": "Bearer " + os.environ["ANTHROPIC_AUTH_TOKEN"], "Content-Type": "application/json"},
    )
    for _ in range(20):  # a bridge whose own address changes with its ports is out of reach for half a minute
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return json.load(answer)["content"]
        except urllib.error.URLError as error:
            print(error, file=sys.stderr)
    raise SystemExit(9)


assert os.environ["HOME"] == "/home/agent", os.environ["HOME"]
prompt = sys.argv[sys.argv.index("-p") + 1] + open("PROBLEM_STATEMENT.md").read()
first = ask([{"role": "user", "content": prompt}])
subprocess.run(["git", "apply"], input=first[0]["input"]["patch"].encode(), check=True)
done = ask([{"role": "user", "content": prompt}, {"role": "assistant", "content": first}])
print(json.dumps({"result": done[0]["text"]}))
"""
_PATCH = "/workspace/__patch__.diff"
_EVAL = "/workspace/swepro_eval"

MakeSandbox = Callable[[str], Any]
Wait = Callable[..., Awaitable[tuple[int, str]]]


@contextmanager
def adapter(patches: Mapping[str, str], host: str) -> Iterator[tuple[str, list[str]]]:
    """An endpoint of the trainer's that sandboxes reach at `host`: (its URL, the tokens of the calls that came).

    `patches`: what the agent with this token is told to apply.
    """
    calls: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            token = self.headers["Authorization"].removeprefix("Bearer ")
            messages = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
            calls.append(token)
            tool = {"type": "tool_use", "name": "apply", "input": {"patch": patches[token]}}
            content = [tool] if len(messages) == 1 else [{"type": "text", "text": "done"}]
            body = json.dumps({"content": content}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("0.0.0.0", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{host}:{server.server_port}", calls
        finally:
            server.shutdown()
            thread.join()


async def polled(
    sb: Any, *, cmd: str, time_budget_sec: int, tag: str, user: str, env: dict[str, str], workdir: str, out_file: str
) -> tuple[int, str]:
    """Slime's exec_and_wait on any sandbox: a detached launcher, and looks for the mark that it leaves."""
    launcher, done, lock = f"/tmp/.{tag}.sh", f"/tmp/.{tag}.done", f"/tmp/.{tag}.spawned"
    body = f"#!/bin/bash\ncd {workdir}\nexport HOME=/home/{user}\n{cmd}\necho $? > {done}\n"
    await sb.write_file(launcher, body, user=user)
    await sb.exec(f"rm -rf {lock}; rm -f {out_file} {done}", user=user, timeout=30, check=True)
    begin = (
        f"chmod +x {launcher}; mkdir {lock} 2>/dev/null || exit 0; setsid bash {launcher} </dev/null >{out_file} 2>&1 &"
    )
    await sb.exec(begin, user=user, env=env, timeout=30, check=True)
    for _ in range(time_budget_sec):
        await asyncio.sleep(1)
        code, out, _ = await sb.exec(f"test -f {done} && cat {done}", user=user, timeout=15)
        if code == 0 and out.strip():
            return int(out), ""
    return -1, ""


async def rollout(
    row: Mapping[str, Any],
    folder: Path,
    make: MakeSandbox,
    evaluator: MakeSandbox,
    wait: Wait,
    adapter_url: str,
    token: str,
    agent: Path,
) -> dict[str, object]:
    """The reward of one row, and what led to it; `folder` is where its files lie."""
    metadata = row["metadata"]
    workdir, swepro = metadata["workdir"], metadata.get("swepro", {})
    async with make(metadata["image"]) as sb:
        await sb.write_file("/usr/local/bin/claude", agent, user="root")
        await sb.exec("chmod 755 /usr/local/bin/claude && python3 --version", user="root", check=True, timeout=60)
        await _prepare(sb, workdir, metadata)
        await sb.write_file(f"{workdir}/PROBLEM_STATEMENT.md", metadata["problem_statement"], user="agent")
        await sb.exec(f"mkdir -p {workdir}/.harness && chown agent:agent {workdir}/.harness", check=True, timeout=30)
        code, tail = await wait(
            sb,
            cmd=f"/usr/local/bin/claude -p {quote('Resolve the issue.')} --verbose",
            time_budget_sec=150,
            tag="run",
            user="agent",
            env={"ANTHROPIC_BASE_URL": adapter_url, "ANTHROPIC_AUTH_TOKEN": token},
            workdir=workdir,
            out_file=f"{workdir}/.harness/trajectory.jsonl",
        )
        lines = (await sb.read_file(f"{workdir}/.harness/trajectory.jsonl", user="agent")).splitlines()
        left_out = "':(exclude)PROBLEM_STATEMENT.md' ':(exclude).harness/'"
        _, diff, _ = await sb.exec(
            f"cd {workdir} && git add -N . && git diff -- . {left_out}", user="agent", timeout=120
        )
    async with evaluator(metadata["image"]) as ev:
        if swepro:
            await ev.exec(f"mkdir -p {_EVAL} && chmod 777 {_EVAL}", user="root", check=True)
            for key, name in (("run_script_path", "run_script.sh"), ("parser_script_path", "parser.py")):
                await ev.write_file(f"{_EVAL}/{name}", folder / swepro[key], user="root")
        await _prepare(ev, workdir, metadata)
        applied = await _apply(ev, workdir, diff)
        reward = await _graded(ev, workdir, metadata) if applied else 0.0
    return {
        "reward": reward,
        "applied": applied,
        "exit_code": code,
        "told": lines[-1] if lines else "",
        "tail": tail,
        "diff": diff,
    }


async def _prepare(sb: Any, workdir: str, metadata: Mapping[str, Any]) -> None:
    """The agent's user, and the row's own commands as that user."""
    await sb.exec(
        f"id agent >/dev/null 2>&1 || useradd -m -s /bin/bash agent && chown -R agent:agent /home/agent {workdir}"
        " && git config --system --add safe.directory '*' && id agent",
        user="root",
        check=True,
        timeout=60,
    )
    await sb.exec("mkdir -p /workspace && chmod 777 /workspace", user="root", check=True)
    before = metadata.get("swepro", {}).get("before_repo_set_cmd")
    commands = "\n".join(metadata.get("pre_commands", []))
    for name, text in (("before", before), ("pre", commands)):
        if text:
            script = f"/workspace/__{name}__.sh"
            await sb.write_file(script, f"set -e\ncd {workdir}\n{text}\n", user="agent")
            # unchecked, as there: an agent's image has no commit to take hidden tests from
            await sb.exec(f"bash {script}", user="agent", timeout=600)


async def _apply(ev: Any, workdir: str, diff: str) -> bool:
    if not diff.strip():
        return True
    await ev.write_file(_PATCH, diff, user="agent")
    ladder = f"(git apply --3way {_PATCH}) || (git apply {_PATCH}) || (patch -p1 < {_PATCH})"
    code, _, _ = await ev.exec(f"cd {workdir} && ({ladder})", user="agent", timeout=120)
    return bool(code == 0)


async def _graded(ev: Any, workdir: str, metadata: Mapping[str, Any]) -> float:
    if swepro := metadata.get("swepro"):
        files = quote(",".join(swepro["selected_test_files"]))
        out, err, result = (f"{_EVAL}/{name}" for name in ("stdout.log", "stderr.log", "result.json"))
        await ev.exec(
            f"cd {workdir} && bash {_EVAL}/run_script.sh {files} > {out} 2> {err} || true", user="agent", timeout=120
        )
        await ev.exec(f"python3 {_EVAL}/parser.py {out} {err} {result}", user="agent", timeout=120)
        text = await ev.read_file(result, user="agent")
        tests = json.loads(text)["tests"] if text else []
        passed = {test["name"] for test in tests if test["status"] == "PASSED"}
        return float({*swepro["fail_to_pass"], *swepro["pass_to_pass"]} <= passed)
    if "eval_cmd" in metadata:
        command = metadata["eval_cmd"]
    else:
        command = "python /workspace/__f2p__.py"
        await ev.write_file("/workspace/__f2p__.py", metadata["remote_env_info"]["f2p_script"], user="agent")
    code, _, _ = await ev.exec(f"cd {workdir} && {command}", user="agent", timeout=120)
    return float(code == 0)


def _by_id(rows: Path) -> dict[str, Any]:
    return {row["metadata"]["instance_id"]: row for row in map(json.loads, rows.read_text().splitlines())}


async def rollouts(
    rows: Path,
    patches: Mapping[str, str],
    make: MakeSandbox,
    wait: Wait,
    host: str,
    agent: Path,
    *,
    evaluator: MakeSandbox | None = None,
) -> dict[str, dict[str, object]]:
    """All rollouts at once, by token: a token is `<instance id> <patch's name>`, `patches` has the text of each."""
    by_id = _by_id(rows)
    with adapter(patches, host) as (url, calls):
        found = await asyncio.gather(
            *(
                rollout(by_id[token.split()[0]], rows.parent, make, evaluator or make, wait, url, token, agent)
                for token in patches
            )
        )
    return {token: {**one, "calls": calls.count(token)} for token, one in zip(patches, found, strict=True)}
