"""The lines by which the documents say to begin, run as they stand, in the packages' own environments."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import ROOT
from tests.documents import blocks

from .serving import free_port, serving, until

PAGES = {
    "verifiers_v1": ("docs/ecosystem.md", "### verifiers 0.4"),
    "verl/beside-verl-trl": ("docs/ecosystem.md", "### TRL"),
    "inspect_ai": ("docs/ecosystem.md", "### inspect_ai"),
    "mini": ("docs/ecosystem.md", "### mini-swe-agent"),
    "swerex": ("docs/ecosystem.md", "### SWE-ReX"),
    "e2b-newest": ("docs/boxes.md", "# Boxes"),
    "mcp": ("docs/agents.md", "### A token in place of a key"),
    "openenv": ("docs/agents.md", "## OpenEnv"),
    "verifiers": ("docs/code-search.md", "### verifiers"),
    "skyrl": ("docs/code-search.md", "### SkyRL"),
}
"""Environment, and a folder of its `share` -> the page and the heading over the lines."""
ELSEWHERE = {"skyrl", "sweagent"}
"""Packages that no environment has."""
BY_HAND = "inspect eval"
"""Needs openai and aiobotocore, which the lock of inspect_ai leaves out."""
OWN = {"verifiers_v1": [ROOT / "examples" / "verifiers"]}
"""What `pip install` brings besides the client."""


@pytest.fixture(scope="module")
def newcomer(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables that "How to begin" sets, for a server and a policy that run as it says."""
    port = free_port()
    words = [sys.executable, str(ROOT / "examples" / "scripted_policy.py"), "--port", str(port)]
    url = f"http://127.0.0.1:{port}/v1"

    def answers() -> bool:
        try:
            return bool(httpx.get(url, trust_env=False).status_code)
        except httpx.TransportError:
            return False

    with (
        serving(tmp_path_factory.mktemp("first"), rows, dialect="tool_calls") as server,
        subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as policy,
    ):
        try:
            until(answers, what="the scripted policy")
            yield {"SANDBOX_URL": server.url, "SCRIPTED_BASE_URL": url, "SCRIPTED_API_KEY": "none"}
        finally:
            policy.terminate()


def installable(line: str) -> None:
    """Check what can be checked of a `pip install` without the network: folders and extras."""
    extras = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for folder, extra in re.findall(r"(\./[\w/]+)(?:\[([\w-]+)\])?", line.partition("#")[0]):
        assert (ROOT / folder / "pyproject.toml").exists(), line
        assert not extra or extra in extras, line


def one_spaced(text: str) -> str:
    """Text that does not depend on the width of columns."""
    return re.sub(r"[ \t]+", " ", text)


def imports(text: str) -> str:
    """The imports of a program that has the reader's own names in it."""
    wanted = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
    kept = [node for node in wanted if getattr(node, "module", "x").partition(".")[0] not in ELSEWHERE]
    return ast.unparse(ast.Module(kept, []))


@pytest.mark.parametrize("environment", PAGES)
def test_the_lines_run_as_written(
    environment: str, newcomer: dict[str, str], tmp_path: Path, missing: Callable[[str], None]
) -> None:
    """A newcomer copies lines that need what the page does not say, or that print something else."""
    name, _, beside = environment.partition("/")
    place = ROOT / ".cache" / "sdk" / name
    if not (place / "bin" / "python").exists():
        missing(f"the environment of {name} (scripts/environments.sh sdk .cache/sdk)")
    for shared in ("examples", "client"):
        (tmp_path / shared).symlink_to(ROOT / shared)
    paths = [*([place / "share" / beside] if beside else []), ROOT / "client", *OWN.get(name, [])]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SANDBOX_", "E2B_"))}
    variables = {
        **kept,
        **newcomer,
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": ":".join(map(str, paths)),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "no_proxy": "*",
    }
    given = blocks(*PAGES[environment])
    for number, block in enumerate(given):
        language, text = block.language, block.text
        output = next((after.text for after in given[number + 1 : number + 2] if after.language == "text"), "")
        if language == "sh" and BY_HAND not in text:
            lines = text.splitlines(keepends=True)
            for line in lines:
                if line.startswith("pip install"):
                    installable(line)
            script = "".join(line for line in lines if not line.startswith("pip install"))
            words = ["bash", "-euc", script]
        elif language == "python":
            words = ["python", "-c", text if output else imports(text)]
        else:
            continue
        done = subprocess.run(
            words,
            cwd=tmp_path,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout[-4000:]}"
        for line in output.splitlines():
            assert one_spaced(line) in one_spaced(done.stdout), f"{text}\n{done.stdout[-4000:]}"


COMPOSED = """
import json, sys
from importlib.util import find_spec
from hydra import compose, initialize_config_dir
with initialize_config_dir(find_spec("verl").submodule_search_locations[0] + "/trainer/config", version_base=None):
    made = compose("ppo_trainer", overrides=sys.argv[1:])
print(json.dumps([made.ray_kwargs.ray_init.runtime_env.env_vars.SANDBOX_URL, made.reward.reward_manager.name]))
"""
PROVIDED = """
import sys, yaml
from nemo_gym.sandbox import register_provider, resolve_provider_config
from sandbox_client.nemo_gym import SandboxServiceProvider
register_provider("sandbox_service", SandboxServiceProvider)
print(resolve_provider_config(yaml.safe_load(sys.argv[1])["env"]["sandbox"]["provider"]))
"""
SOURCED = """
import json, sys, tomllib, verifiers.v1 as vf
(source,) = tomllib.loads(sys.argv[1])["orchestrator"]["train"]["source"]
made = vf.resolve_env_config(source["env"])
print(json.dumps([type(made).__module__, made.agent.max_turns, made.agent.harness.tools, made.agent.runtime.type]))
"""


def in_environment(missing: Callable[[str], None], name: str, paths: list[Path], script: str, *words: str) -> str:
    """What `script` prints in the environment of that name."""
    python = ROOT / ".cache" / "sdk" / name / "bin" / "python"
    if not python.exists():
        missing(f"the environment of {name} (scripts/environments.sh sdk .cache/sdk)")
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(map(str, paths)), "SANDBOX_URL": "http://h:1"}
    return subprocess.run(
        [python, "-c", script, *words], env=variables, capture_output=True, text=True, check=True, timeout=120
    ).stdout


@pytest.mark.parametrize("beside", ["", "beside-verl-0.9.0", "beside-verl-0.7.1"])
def test_verls_lines_are_a_configuration_of_verl(beside: str, missing: Callable[[str], None]) -> None:
    """A page whose keys veRL does not know, or whose quotes its shell or Hydra takes for something else."""
    for_bash = ""
    for heading in ("## 2. The agent loop", "## 3. veRL's own tool loop"):
        for_bash += " ".join(block.text for block in blocks("docs/verl.md", heading) if block.language == "sh")
    for_bash = for_bash.replace("python -m verl.trainer.main_ppo", "").replace("...\n", "\\\n").replace("\\\n", " ")
    split = ["bash", "-euc", f"printf '%s\\0' {' '.join(for_bash.splitlines())}"]
    words = subprocess.run(split, env={"KEY": "k", "PWD": "/"}, capture_output=True, text=True, check=True).stdout
    paths = [ROOT / ".cache" / "sdk" / "verl" / "share" / beside] if beside else []
    # the last of two names of an agent loop counts, as in Hydra
    told = in_environment(missing, "verl", paths, COMPOSED, *words.split("\0")[:-1])
    assert told == '["http://any:k@sandbox-1:5000", "SandboxRewardManager"]\n'


def test_nemo_gyms_lines_name_our_provider(missing: Callable[[str], None]) -> None:
    """A configuration that NeMo Gym reads otherwise."""
    (lines,) = [block for block in blocks("docs/ecosystem.md", "### NeMo Gym") if block.language == "yaml"]
    paths = [ROOT / ".cache" / "sdk" / "nemo_gym" / "share" / "beside-nemo_gym-0.7.0", ROOT / "client"]
    assert "sandbox_service" in in_environment(missing, "nemo_gym", paths, PROVIDED, lines.text)


def test_prime_rls_lines_are_a_configuration_of_verifiers(missing: Callable[[str], None]) -> None:
    """A field that verifiers refuses, or an environment that is not ours. (prime-rl itself is not on PyPI.)"""
    (lines,) = [block for block in blocks("docs/ecosystem.md", "### verifiers 0.4") if block.language == "toml"]
    told = in_environment(missing, "verifiers_v1", [ROOT / "client", *OWN["verifiers_v1"]], SOURCED, lines.text)
    assert told == '["sandbox_client.verifiers_v1", 30, ["bash", "submit"], "subprocess"]\n'
