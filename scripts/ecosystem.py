"""Prints docs/ecosystem.md: who runs on the service, with the releases of the lock files (`make ecosystem`)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_HEAD = """\
# Trainers, agents and clients

What runs on the service, and with what it is tried. Made by `make ecosystem` from `scripts/ecosystem.py`. Releases
under "in CI" are those of the lock files in `requirements/`; the test drives the real package in that release. What
stands under "by hand" was run so once, against the real package or its public source: no test holds it.

A reward that says nothing about the policy is `masked`; the last column says how it is kept from the trainer.

"""
_COLUMNS = ("client", "in CI", "test", "by hand", "works", "does not", "masked")
_EXAMPLES = """
## How to begin

In a checkout of this repository:

```sh
make setup images                                              # .venv, and the samples
.venv/bin/sandbox-server instances import examples/instances.jsonl
SANDBOX_DIALECT=tool_calls .venv/bin/sandbox-server serve &    # for policies that call tools; text needs no setting
python3 examples/scripted_policy.py &                          # an endpoint without a model: plays the samples' fixes
export SANDBOX_URL=http://127.0.0.1:5000 SCRIPTED_BASE_URL=http://127.0.0.1:8000/v1 SCRIPTED_API_KEY=none
```

Then the lines of a client, each in an environment of its own. tests/live/test_first_lines.py runs those that follow an
installation (but for `inspect eval`), in the releases of the table, and compares the output below them. What has none
is for your own program.
"""


@dataclass(frozen=True)
class Client:
    """One line of the table, and its lines to start by."""

    name: str
    locks: Sequence[tuple[str, str]]
    """Lock files and the package that each pins; what they pin is in CI."""
    test: str
    """The file and the test's name, `file::test`; "" if none drives the real package."""
    works: str
    fails: str
    masked: str
    start: str = ""
    """Lines of configuration, in Markdown; "": the page that the name links to has them."""
    by_hand: str = ""


CLIENTS = (
    Client(
        "[veRL](verl.md), agent loops and `swedev`",
        [("sdk-verl.txt", "verl"), ("beside-verl-0.9.0.txt", "verl"), ("beside-verl-0.7.1.txt", "verl")],
        "tests/live/test_verl.py::test_",
        "SWE tasks and code search, tool loop, reward loop",
        "",
        "response mask 0, or dropped ([verl.md](verl.md))",
    ),
    Client(
        "[slime](slime.md)",
        [],
        "",
        "its coding-agent example, by E2B's SDK or `sandbox_client.slime`",
        "",
        "[slime.md](slime.md)",
        by_hand="its own `generate()`, unmodified",
    ),
    Client(
        "[E2B's SDK](boxes.md)",
        [("sdk-e2b-newest.txt", "e2b"), ("sdk-e2b-older.txt", "e2b"), ("sdk-e2b-oldest.txt", "e2b")],
        "tests/live/test_e2b.py::test_",
        "boxes, templates, files, commands, ports and their websockets, pause, snapshots, fork, metrics, logs",
        "volumes, secrets, egress rules by what a request says ([boxes.md](boxes.md#exceptions))",
        "no rewards",
        by_hand="its own suites: Python 2.45.1, JavaScript 2.45.0 (`make e2b-suite`; in a browser, Chromium 156); "
        "60 calls by JavaScript 2.51.0; Python 1.11.1 by E2B_DOMAIN and TLS; "
        "the code interpreter's packages, Python 2.11.5 (in CI too) and JavaScript 2.8.0",
    ),
    Client(
        "[E2B's command line](boxes.md#e2bs-command-line)",
        [],
        "",
        "templates from Dockerfiles, sandboxes, a terminal, logs, pause",
        "`e2b auth login`, `template publish`",
        "no rewards",
        by_hand="2.19.0, `make clients` (`test_e2b_cli.py`)",
    ),
    Client(
        "Agent frameworks with an E2B sandbox",
        [],
        "",
        "OpenAI Agents (tar and snapshot workspaces, terminal), Deep Agents, Haystack, Google ADK, CrewAI, smolagents, "
        "Agno, CAMEL (by E2B_DOMAIN and TLS, [ports](boxes.md#ports): it wants e2b-code-interpreter 1)",
        "what fails at E2B too: CrewAI's append, Agno's download, watch and list",
        "no rewards",
        """\
```sh
export E2B_API_URL=$SANDBOX_URL E2B_SANDBOX_URL=$SANDBOX_URL
export E2B_API_KEY=e2b_0000000000000000000000000000000000000000
```

No line of theirs changes. The server maps E2B's template: `SANDBOX_BOX_TEMPLATES='{"base": "IMAGE"}'
SANDBOX_BOX_USER=user`. smolagents, Agno, Google ADK's `run_code` and CrewAI's Python tool want E2B's
[code interpreter](boxes.md#code-interpreter).""",
        by_hand="openai-agents 0.24.0, deepagents 0.6.12 with langchain-e2b 0.0.6 (which refuses deepagents 0.7), "
        "e2b-haystack 2.0.0, e2b-adk 0.1.2, crewai-tools 1.15.30, smolagents 1.26.0, agno 3.1.10, camel-ai 0.2.90",
    ),
    Client(
        "[OpenHands](agents.md#mcp), its SDK",
        [],
        "",
        "an agent whose only tools are a session's, by MCP (`examples/agents/openhands_agent.py`)",
        "its runtimes and its agent server were not run on boxes",
        "the service grades: `mask` in the reward's fields",
        by_hand="1.58.2, `make clients` (`test_openhands.py`), with a scripted model",
    ),
    Client(
        "[MCP](agents.md#mcp): Claude Code, any SDK",
        [("sdk-mcp.txt", "mcp"), ("sdk-mcp-older.txt", "mcp")],
        "tests/live/test_mcp.py::test_",
        "a session's tools; sessions of the agent's own, with their reward",
        "Claude Code with a real model was not run",
        "`mask` in the reward's fields",
        by_hand="Claude Code 2.1.332, `examples/agents/claude_code.sh` with the scripted policy",
    ),
    Client(
        "[OpenEnv](agents.md#openenv), and what has its client",
        [("sdk-openenv.txt", "openenv"), ("sdk-openenv-older.txt", "openenv-core")],
        "tests/live/test_openenv.py::test_",
        "reset, step, state, by websocket and HTTP",
        "ART and NeMo Gym were not run with it",
        "`reward` is None",
    ),
    Client(
        "verifiers 0.2 to 0.3.1",
        [("sdk-verifiers.txt", "verifiers")],
        "tests/live/test_adapters.py::test_verifiers",
        "code search, `sandbox_client.verifiers` ([code-search.md](code-search.md#verifiers))",
        "0.4.0 removed StatefulToolEnv",
        '`state["error"]`, no score',
    ),
    Client(
        "verifiers 0.4, prime-rl, Environments Hub",
        [("sdk-verifiers_v1.txt", "verifiers")],
        "tests/live/test_adapters.py::test_verifiers_v1",
        "SWE tasks and code search: taskset, harness, env; tools or text; a turn's calls are one request",
        "other harnesses (they run in a container of their own); prime-rl itself was not run",
        "the trace is an error, with no reward",
        """\
```sh
pip install './client[verifiers-v1]' ./examples/verifiers     # a hub package: copy it, rename it, `prime env push`
grep ledger-12 examples/instances.jsonl > rows.jsonl
vf-eval sandbox-swe --env.taskset.rows rows.jsonl --no-rich --no-push \\
    --model scripted --client.base-url $SCRIPTED_BASE_URL --client.api-key-var SCRIPTED_API_KEY
```

```text
reward=1.000 turns=3 stop=agent_completed
```

```toml
# prime-rl's rl.toml; in verifiers' own files the tables begin with `env`
[[orchestrator.train.source]]
[orchestrator.train.source.env.taskset]
id = "sandbox-swe"
rows = "train.jsonl"           # instance_id, and prompt or problem_statement
[orchestrator.train.source.env.agent]
max_turns = 30
[orchestrator.train.source.env.agent.harness]
id = "sandbox-swe"
tools = ["bash", "submit"]     # or ["bash", "localization_finish"]; [] is a policy that writes its calls as text
```

With tools, instances need the dialect `tool_calls`. The agent's runtime is `subprocess` and runs nothing.""",
        by_hand="`vf-eval` 0.4.0 on the samples; prime-rl's configuration (source of 2026-08-21)",
    ),
    Client(
        "SkyRL",
        [("sdk-skyrl.txt", "skyrl-gym")],
        "tests/live/test_adapters.py::test_skyrl",
        "code search, `sandbox_client.skyrl` ([code-search.md](code-search.md#skyrl))",
        "SWE tasks have no environment of their own",
        '`metadata["mask"]`, or an exception (`faults: raise`)',
    ),
    Client(
        "TRL",
        [("beside-verl-trl.txt", "trl")],
        "tests/live/test_adapters.py::test_trl",
        "SWE tasks and code search by `environment_factory`; `rewards` grades a batch at once",
        "TRL goes on after the end while the policy calls tools (they answer that it is over); a turn is a call",
        "None: advantage 0, left out of the group's mean",
        """\
```sh
pip install ./client trl torch
python examples/trl_step.py        # one step of the real trainer, without a GPU
```

```text
rewards: [1.0, 0.0]
```

```python
from sandbox_client.trl import PatchEnv, rewards  # rows: prompt, instance_id (dialect tool_calls)
from trl import GRPOTrainer

GRPOTrainer(model, train_dataset=rows, environment_factory=PatchEnv, reward_funcs=[rewards])
```

`SearchEnv` is for code search; `GradedPatchEnv` and `GradedSearchEnv` have `get_reward`, for trainers that score each
rollout when it is complete.""",
    ),
    Client(
        "inspect_ai",
        [("sdk-inspect_ai.txt", "inspect-ai")],
        "tests/live/test_adapters.py::test_inspect_ai",
        "a sandbox provider over boxes and sessions: its `self_check` list passes as a user who is not root; a scorer",
        "as root three of its checks fail, since root has a right to all files; `connection()`",
        "the sample is an error",
        """\
```sh
pip install './client[inspect]' openai
inspect eval examples/inspect_task.py --model openai-api/scripted/policy --limit 1 --display plain
```

```text
mean  1.000
```

```python
from inspect_ai import Task
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.tool import bash
from sandbox_client.inspect_ai import graded

Task(
    dataset=[Sample(input="Fix it.", metadata={"instance_id": "samples__ledger-12"})],
    solver=react(tools=[bash()]),
    scorer=graded(),
    sandbox="sandbox_service",
)  # sandbox=("sandbox_service", IMAGE): a box, without a task
```""",
    ),
    Client(
        "mini-swe-agent",
        [("sdk-mini.txt", "mini-swe-agent")],
        "tests/live/test_adapters.py::test_mini_swe_agent",
        "an environment class, in a session (graded) or a box",
        "its batch command for SWE-bench does not tell a class of others which instance it is for",
        "RolloutMasked",
        """\
```sh
pip install './client[mini]'
python examples/mini_agent.py $SANDBOX_URL
```

```text
samples__ledger-12: Submitted, resolved, reward 1.0: 5 of 5 F2P and 14 of 14 P2P tests pass
```

```python
from minisweagent.agents.default import DefaultAgent
from sandbox_client.mini import SandboxEnvironment

environment = SandboxEnvironment(instance="samples__ledger-12")  # or in YAML: environment_class, instance or image
DefaultAgent(model, environment, **config).run(problem)
environment.reward()
```""",
    ),
    Client(
        "SWE-ReX, for SWE-agent",
        [("sdk-swerex.txt", "swe-rex")],
        "tests/live/test_adapters.py::test_swerex",
        "a deployment of SWE-ReX in a session (graded) or a box",
        "interactive programs (`is_interactive_command`, `expect`); SWE-agent is not on PyPI, so CI does not run it",
        "RolloutMasked",
        """\
```sh
pip install './client[swerex]'
cat > first.py <<'END'
import asyncio
from sandbox_client.swerex import SandboxDeployment
from swerex.runtime.abstract import BashAction, CreateBashSessionRequest


async def main():
    deployment = SandboxDeployment(instance="samples__ledger-12")
    await deployment.start()
    await deployment.runtime.create_session(CreateBashSessionRequest())
    done = await deployment.runtime.run_in_session(BashAction(command="git log --oneline | wc -l"))
    print(done.output.strip(), (await deployment.reward()).verdict)


asyncio.run(main())
END
python first.py
```

```text
3 empty_patch
```

SWE-agent, with its own configuration (it is not on PyPI: `git clone`, `pip install -e`): `python examples/swe_agent.py
$SANDBOX_URL` runs a sample.

```python
import asyncio
from sandbox_client.swerex import SandboxDeployment
from sweagent.environment.repo import PreExistingRepoConfig
from sweagent.environment.swe_env import SWEEnv
from sweagent.run.run_single import RunSingle

deployment = SandboxDeployment(instance="samples__ledger-12")
env = SWEEnv(
    deployment=deployment,
    repo=PreExistingRepoConfig(repo_name="testbed", reset=False),
    post_startup_commands=[],
)
RunSingle(env, agent, problem_statement).run()
asyncio.run(deployment.reward())
```

Tools of the bundle `windowed` need WINDOW among `tools.env_variables`, as in SWE-agent's own configurations. A shell
keeps its folder, variables, functions, aliases and options from command to command, but no process, trap or open
file.""",
        by_hand="SWE-agent 1.1.0, its default.yaml, a scripted model: resolved (`SANDBOX_TEST_SWE_AGENT`)",
    ),
    Client(
        "AReaL",
        [],
        "",
        "`sandbox_client.areal.SandboxWorkflow`: SWE tasks and code search as text",
        "untried with its engines, which need CUDA's torch; its import needs 16 packages (numba) beyond veRL's",
        "None: the trajectory is rejected",
        """\
```python
trainer.train(
    workflow="sandbox_client.areal.SandboxWorkflow",  # rows: instance_id, messages
    workflow_kwargs={"gconfig": config.gconfig, "tokenizer": config.tokenizer_path, "max_turns": 30},
)
```""",
        by_hand="1.0.4: its request and response types, with a scripted engine",
    ),
    Client(
        "[Harbor](instances.md#harbor)",
        [],
        "",
        "its environment `e2b`: templates from Dockerfiles, agents, separate verifiers, artifacts, collect hooks",
        "tasks of several containers, and Dockerfiles of several stages, which E2B's SDK refuses: import them",
        "Harbor grades by itself",
        """\
```sh
pip install 'harbor[e2b]'                              # Python 3.12 or newer
export E2B_API_URL=$SANDBOX_URL E2B_SANDBOX_URL=$SANDBOX_URL
export E2B_API_KEY=e2b_0000000000000000000000000000000000000000
harbor run --path examples/harbor --include-task-name hello --agent oracle --env e2b --yes
```

`make clients` does so in a container, with the tasks `history` and `separate` too.""",
        by_hand="0.26.0, `make clients`: oracle 1.0 and nop 0.0 on three sample tasks",
    ),
    Client(
        "NeMo Gym",
        [("beside-nemo_gym-0.7.0.txt", "nemo-gym")],
        "tests/live/test_adapters.py::test_nemo_gym",
        "a sandbox provider over boxes: create, exec, files, status, pause, close, connect",
        "PTY, ports, networks between sandboxes; of the release its `sandbox` package is run, on Python 3.11",
        "a fault is `error_type`, no exit code",
        """\
```sh
pip install ./client nemo-gym                         # Python 3.13.14 or newer
```

```yaml
env: {sandbox: {provider: {sandbox_service: {}}}}     # found by the entry point of sandbox-client
```""",
    ),
    Client(
        "rLLM",
        [],
        "",
        "a `Sandbox` over boxes: exec, upload_file, upload_dir, is_alive, close",
        "it has no registry of backends: its factory must be replaced; not on PyPI",
        "SandboxError, which rLLM does not take for the command's failure",
        """\
```python
import rllm.sandbox.sandboxed_flow, sandbox_client.rllm

rllm.sandbox.sandboxed_flow.create_sandbox = sandbox_client.rllm.create_sandbox
```""",
        by_hand="source of 2026-08-15: its protocol and `_safe_exec`",
    ),
)


def releases(client: Client) -> str:
    """The releases that the client's lock files pin, in their order."""
    pinned = []
    for lock, package in client.locks:
        found = re.search(rf"^{re.escape(package)}==(\S+)", (ROOT / "requirements" / lock).read_text(), re.MULTILINE)
        assert found, f"{lock} does not pin {package}"
        pinned.append(found[1])
    return ", ".join(pinned)


def markdown() -> str:
    """The document."""
    rows = [f"| {' | '.join(_COLUMNS)} |\n", f"|{'---|' * len(_COLUMNS)}\n"]
    for one in CLIENTS:
        test = f"`{one.test.removeprefix('tests/live/').removesuffix('::test_')}`" if one.test else ""
        cells = (one.name, releases(one), test, one.by_hand, one.works, one.fails, one.masked)
        rows.append(f"| {' | '.join(cells)} |\n")
    begins = [f"\n### {one.name}\n\n{one.start}\n" for one in CLIENTS if one.start]
    return _HEAD + "".join(rows) + _EXAMPLES + "".join(begins)


def without_test(tests: Mapping[str, str]) -> list[str]:
    """Clients whose releases are said to be in CI while no such test is in `tests` (a file's text by its path)."""
    named = {one.name: one.test.split("::") for one in CLIENTS if one.locks}
    return [name for name, (path, *test) in named.items() if f"def {test[0]}" not in tests.get(path, "")]


if __name__ == "__main__":
    print(markdown(), end="")
