"""The drop-in's names, prompts, rewards and tensors, and the ways to install it."""

from __future__ import annotations

import importlib
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from stand import Fault, Stand

from sandbox_client import SettingsError, swedev_prompts, swedev_utils
from sandbox_client.swedev_rewards import masked_rewards
from sandbox_client.swedev_utils import calc_reward

CLIENT = Path(swedev_utils.__file__).parent.parent

# A trainer's own module, in the shape of veRL's: its texts are its own.
ORIGINAL = '''
import hashlib
IN_CONTEXT_LEARNING_EXAMPLE_PREFIX = """
EXAMPLE of a task
""".lstrip()
IN_CONTEXT_LEARNING_EXAMPLE_SUFFIX = """
END of the task
""".lstrip()
OF_A_FORK = 17
def get_system_prompt():
    return "You are an agent."
def _get_swebench_workspace_dir_name(instance: dict) -> str:
    return f"{instance['repo']}__{instance['version']}".replace("/", "__")
def get_instruction(instance: dict):
    place = _get_swebench_workspace_dir_name(instance)
    return IN_CONTEXT_LEARNING_EXAMPLE_PREFIX + f"mend {place}" + IN_CONTEXT_LEARNING_EXAMPLE_SUFFIX
async def initialize_runtime(instance_id):
    raise SystemExit("the original was called")
'''

TASKS = """
import asyncio
from verl.utils.swedev_utils import *
async def dummy(*_, **__):
    pass
async def swe_dev_obs(ids, sid, tokenizer, **_):
    result = call_observation_api(sid, tokenizer.decode(ids, skip_special_tokens=False))
    return {"done": False, "ids": tokenizer.encode(result["content"]), "observation_times": 1}
async def swe_dev_end(sid, done):
    await asyncio.to_thread(call_postprocess_api, sid)
"""

ROLLOUT = """
import httpx
from .tasks import *
class AsyncRollout:
    def generate_sequences(self, sids):
        for sid in sids:
            call_postprocess_api(sid)
        return sids
"""

MANAGER = """
import aiohttp
from verl.utils.swedev_utils import *
class SWEDevRewardManager:
    async def fetch_reward(self, sid, session):
        raise SystemExit("the original was called")
"""


@pytest.fixture
def verl(tmp_path: Path) -> Path:
    """A package in veRL's layout, whose rollout module copies names by star imports as veRL's does."""
    files = {
        "verl/__init__.py": "",
        "verl/utils/__init__.py": "",
        "verl/utils/swedev_utils.py": ORIGINAL,
        "verl/workers/__init__.py": "",
        "verl/workers/agentic/__init__.py": "",
        "verl/workers/agentic/tasks.py": TASKS,
        "verl/workers/agentic/async_rollout.py": ROLLOUT,
        "verl/workers/reward_manager/__init__.py": "from .swedev import SWEDevRewardManager\n",
        "verl/workers/reward_manager/swedev.py": MANAGER,
        "torch/__init__.py": "",  # the real one takes 1.6 s of CPU to import, in each program
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def python(script: str, path: list[Path], **environment: str) -> str:
    """Run a script in an interpreter of its own, with these folders to import from."""
    # the checkout's own hook first: an editable installation has a copy of it
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [CLIENT, *path])), **environment}
    done = subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def test_star_import_gives_every_name_of_the_original() -> None:
    """A star import of veRL's would miss a name that it only has because the original leaks it."""
    namespace: dict[str, Any] = {}
    exec("from sandbox_client.swedev_utils import *", namespace)
    own = {
        *("OBS_ERROR_MSG", "clear_suffix", "is_stop", "get_generation_tokens"),
        *("initialize_runtime", "call_observation_api", "call_postprocess_api", "calc_reward", "get_api"),
        *("expand_tensor_dict", "remove_trailing_pad_tokens", "split_array", "string_to_hash_tensor"),
        *("clear_swe_non_batch", "get_system_prompt", "get_instruction", "asyncio", "hashlib", "random"),
    }
    assert own <= namespace.keys()
    leaked = {"requests": "requests", "aiohttp": "aiohttp", "torch": "torch", "TensorDict": "tensordict"}
    assert {name for name in leaked if name in namespace} == {n for n, package in leaked.items() if installed(package)}


def test_what_is_not_installed_fails_only_at_its_use() -> None:
    """A driver without torch could not even import the prompts."""
    script = """
import sys
from importlib.machinery import PathFinder
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("requests", "aiohttp", "torch", "tensordict"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path = [f for f in sys.meta_path if f is not PathFinder]
class Finder:
    find_spec = staticmethod(lambda name, path=None, target=None: None if name in
        ("requests", "aiohttp", "torch", "tensordict") else PathFinder.find_spec(name, path, target))
sys.meta_path.append(Finder)
from sandbox_client.swedev_utils import *
assert "torch" not in globals() and "aiohttp" not in globals() and is_stop("<function=finish>")
try:
    string_to_hash_tensor("a")
except ModuleNotFoundError as error:
    print(error)
"""
    assert python(script, [CLIENT]).strip() == "No module named 'torch'"


def test_the_drop_in_needs_httpx_alone() -> None:
    """A dependency would have crept in that the trainer does not have."""
    adapters = {"areal", "inspect_ai", "mini", "nemo_gym", "rllm", "skyrl", "swerex", "uni_agent"}
    adapters |= {"uni_agent_sandboxes", "verifiers", "verifiers_v1", "verl", "verl_tools"}
    modules = [path for path in (CLIENT / "sandbox_client").glob("*.py") if path.stem not in adapters]
    sources = "\n".join(path.read_text() for path in modules)
    imported = set(re.findall(r"^(?:from|import) (\w+)", sources, re.MULTILINE))
    assert imported - set(sys.stdlib_module_names) == {"httpx", "sandbox_client"}


def test_prompts_come_from_the_trainers_own_file(verl: Path) -> None:
    """The policy would be trained on another prompt than the one it was made for."""
    appended = verl / "verl/utils/swedev_utils.py"
    appended.write_text(ORIGINAL + "from sandbox_client.swedev_utils import *\n")
    script = """
from verl.utils.swedev_utils import *
print(get_system_prompt(), get_instruction({"repo": "a/b", "version": "1.0", "problem_statement": "x"}),
      IN_CONTEXT_LEARNING_EXAMPLE_PREFIX, initialize_runtime.__module__)
"""
    out = python(script, [verl, CLIENT])
    assert out.split("\n")[:3] == [
        "You are an agent. EXAMPLE of a task",
        "mend a__b__1.0END of the task",
        " EXAMPLE of a task",
    ]
    assert out.split()[-1] == "sandbox_client.swedev_calls"


def test_prompts_of_a_replaced_file(verl: Path, tmp_path: Path) -> None:
    """Who replaces the whole file needs another place for the text, or a clear word."""
    copy = tmp_path / "original.py"
    copy.write_text(ORIGINAL)
    (verl / "verl/utils/swedev_utils.py").write_text("from sandbox_client.swedev_utils import *\n")
    script = "from verl.utils.swedev_utils import *; print(get_system_prompt(), IN_CONTEXT_LEARNING_EXAMPLE_SUFFIX)"
    assert "You are an agent. END" in python(script, [verl, CLIENT], SANDBOX_PROMPTS_FILE=str(copy))
    (verl / "verl/utils/agent_tasks").mkdir()
    copy.rename(verl / "verl/utils/agent_tasks/swedev.py")
    assert "You are an agent. END" in python(script, [verl, CLIENT])


def test_prompts_that_are_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty prompt would train a policy on nothing."""
    for text in (None, "def get_system_prompt():\n    return ''\n"):
        file = tmp_path / f"{text is None}.py"
        if text:
            file.write_text(text)
        monkeypatch.setenv("SANDBOX_PROMPTS_FILE", str(file))
        with pytest.raises(SettingsError, match="SANDBOX_PROMPTS_FILE"):
            swedev_prompts.get_system_prompt()


HOOKED = """
import asyncio, site, sys
site.addsitedir({client!r})  # runs the .pth, as an installation into site-packages does
import verl.utils.swedev_utils as utils, verl.workers.agentic.async_rollout as rollout
class Tokenizer:
    encode = staticmethod(lambda text: [ord(c) for c in text])
    decode = staticmethod(lambda ids, skip_special_tokens: "".join(map(chr, ids)))
async def main():
    sid = (await rollout.initialize_runtime(1))["sid"]
    turn = await rollout.swe_dev_obs([65, 66], sid, tokenizer=Tokenizer)
    await rollout.swe_dev_end(sid, True)
    return turn
turn = asyncio.run(main())
import inspect
print(turn["ids"], rollout.swe_dev_obs.__module__, utils.OF_A_FORK, utils.get_system_prompt(),
      rollout.dummy.__module__, "OF_A_FORK" in inspect.getsource(utils), sep="|")
"""


@pytest.mark.parametrize(
    ("concurrency", "owner"), [("1", "sandbox_client.swedev_tasks"), ("0", "verl.workers.agentic.tasks")]
)
def test_the_import_hook(stand: Stand, verl: Path, concurrency: str, owner: str) -> None:
    """An unchanged checkout would not get the drop-in, or get it after the names were copied."""
    variables = {"SANDBOX_CLIENT_HOOK": "1", "SANDBOX_CLIENT_HOOK_CONCURRENCY": concurrency, "SANDBOX_URL": stand.url}
    out = python(HOOKED.format(client=str(CLIENT)), [verl], **variables)
    assert out.strip() == f"[65, 66]|{owner}|17|You are an agent.|verl.workers.agentic.tasks|True"
    assert len(stand.bodies("/postprocess")) == 1


HOOKED_BATCH = """
import asyncio, site
site.addsitedir({client!r})
from verl.workers.reward_manager import SWEDevRewardManager
from verl.workers.agentic import async_rollout
class Sid:
    def __init__(self, value): self.value = value
    def item(self): return self.value
async def started():
    return int((await async_rollout.initialize_runtime(1))["sid"])
sid = asyncio.run(started())
async_rollout.AsyncRollout().generate_sequences([sid])
async def rewarded():
    async with async_rollout.httpx.AsyncClient() as client:
        await client.post(async_rollout.get_api("action"), json={{"sid": sid, "content": "solve"}})
    return await SWEDevRewardManager().fetch_reward(Sid(sid), None)
print(asyncio.run(rewarded()))
"""


def test_the_hook_takes_the_rewards_and_the_trainers_own_posts(stand: Stand, verl: Path) -> None:
    """A fault on the way to either would be trained on; a batch would be over before its sessions' ends."""
    stand.fail("/compute_reward", Fault(), Fault(503))
    stand.fail("/process_action", Fault(after_work=True))
    variables = {"SANDBOX_CLIENT_HOOK": "1", "SANDBOX_URL": stand.url}
    assert python(HOOKED_BATCH.format(client=str(CLIENT)), [verl], **variables).strip() == "1.0"
    assert len(stand.runs) == 1, "the action ran twice, or did not run"
    paths = [seen.path for seen in stand.seen]
    assert paths.index("/postprocess") < paths.index("/process_action")


def test_a_verl_without_a_swedev_task_is_told(verl: Path) -> None:
    """A trainer of today would run without a sandbox, and nobody would know why."""
    trainer = verl / "verl" / "trainer" / "ppo"
    trainer.mkdir(parents=True)
    for folder in (trainer, trainer.parent):
        (folder / "__init__.py").touch()
    (trainer / "ray_trainer.py").touch()
    script = f"""
import site, sys, logging
site.addsitedir({str(CLIENT)!r})
logging.basicConfig(stream=sys.stdout)
import verl.trainer.ppo.ray_trainer
"""
    assert python(script, [verl], SANDBOX_CLIENT_HOOK="1") == ""
    (verl / "verl" / "utils" / "swedev_utils.py").unlink()
    assert "sandbox_client.verl.SandboxAgentLoop" in python(script, [verl], SANDBOX_CLIENT_HOOK="1")
    (trainer.parent / "constants_ppo.py").touch()  # all of it that today's driver imports
    script = script.replace("import verl.trainer.ppo", "import verl.trainer.constants_ppo\nimport verl.trainer.ppo")
    assert python(script, [verl], SANDBOX_CLIENT_HOOK="1").count("sandbox_client.verl.SandboxAgentLoop") == 1


def test_the_hook_is_off_unless_asked_for(verl: Path) -> None:
    """Installing the package would change a trainer that did not ask for it, or slow down every interpreter."""
    script = f"""
import site, sys
site.addsitedir({str(CLIENT)!r})
import verl.utils.swedev_utils as utils
print(utils.initialize_runtime.__module__, "sandbox_client_hook" in sys.modules, "httpx" in sys.modules)
"""
    assert python(script, [verl], SANDBOX_CLIENT_HOOK="").strip() == "verl.utils.swedev_utils False False"


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        ({"reward": 0.9, "f2p_count": 9, "f2p_total": 10}, 0.9),
        ({"reward": None}, None),
        ({"f2p_count": 1, "f2p_total": 4}, 0.25),
        ({"f2p_count": 0, "f2p_total": 0}, 0.0),
        ({"f2p_count": None, "f2p_total": 1}, 0.0),
        ({}, 0.0),
        ({"reward": 1.0, "mask": False}, 1.0),
    ],
)
def test_rewards_as_upstream(answer: dict[str, Any], reward: float | None) -> None:
    """An unmasked reward would differ from what the trainer computed itself."""
    assert calc_reward(answer) == reward


def test_a_masked_reward_is_loud(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A fault of ours would be trained on as a silent 0.0."""
    monkeypatch.setenv("SANDBOX_MASKED_REWARD", "-0.5")
    before = masked_rewards().get("infra", 0)
    answer = {"reward": 0.0, "mask": True, "verdict": "infra", "cause": "the image is gone", "receipt": "r9"}
    assert calc_reward(answer) == -0.5
    assert masked_rewards()["infra"] == before + 1
    (record,) = caplog.records
    assert record.levelno == logging.ERROR and "the image is gone" in record.message and "r9" in record.message


@pytest.mark.parametrize("setting", ["SANDBOX_MASKED_REWARD", "SANDBOX_DEAD_SESSIONS", "SANDBOX_CHAT_WRAP"])
def test_an_unusable_setting_is_told_at_import(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reward manager would swallow it and score every sample 0.0."""
    monkeypatch.setenv(setting, "maybe")
    with pytest.raises(SettingsError, match=setting):
        importlib.reload(swedev_utils)


def test_marks_in_the_text() -> None:
    """A rollout would not end, or send turn borders to the shell."""
    assert swedev_utils.is_stop("I am done <function=finish>\n</function>") and not swedev_utils.is_stop("finish")
    bordered = "ls<|im_end|>\n<|im_start|>user\n && pwd<|im_end|>\n<|im_start|>assistant\n \n"
    assert swedev_utils.clear_suffix(bordered) == "ls && pwd"
    assert swedev_utils.get_generation_tokens("user") == [151645, 198, 151644, 872, 198]
    assert swedev_utils.get_generation_tokens("assistant", model="qwen") == [151645, 198, 151644, 77091, 198]
    with pytest.raises(AssertionError):
        swedev_utils.get_generation_tokens("system")
    with pytest.raises(NotImplementedError):
        swedev_utils.get_generation_tokens("user", model="other")
    assert swedev_utils.OBS_ERROR_MSG == "obs too long"


def test_splitting_and_clearing() -> None:
    """Batches would be cut otherwise than before."""
    split = swedev_utils.split_array
    assert split([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]] and split([], 2) == []
    assert split([1, 2, 3], [1, 2]) == [[1], [2, 3]] and split([1, 2, 3], (2, 9)) == [[1, 2], [3]]
    for bad, error in (([1], RuntimeError), ([], RuntimeError), ([1.5], TypeError), ("3", TypeError)):
        with pytest.raises(error):
            split([1, 2, 3], bad)
    with pytest.raises(ValueError):
        split([1], 1, dim=1)
    row = {"repo": 1, "index": 2, "instance_id": 3}
    swedev_utils.clear_swe_non_batch(row, is_dict=True)
    assert row == {"instance_id": 3}
    data = SimpleNamespace(non_tensor_batch={"patch": 1, "__index_level_0__": 1, "kept": 2})
    swedev_utils.clear_swe_non_batch(data)
    assert data.non_tensor_batch == {"kept": 2}
    assert swedev_utils.expand_tensor_dict({"b": 1, "a": 2}, 3) == [2, 2, 1, 1]
    assert swedev_utils.expand_tensor_dict({"a": 2}, 1) == []
    with pytest.raises(AssertionError):
        swedev_utils.expand_tensor_dict({}, 0)


def test_tensors() -> None:
    """Hashes would not match the catalogue's, or a response keep its padding."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    hashed = swedev_utils.string_to_hash_tensor("django__django-11099")
    assert hashed.dtype == torch.int64 and hashed.shape == () and hashed.item() == 1922554310125897704
    trimmed = swedev_utils.remove_trailing_pad_tokens
    assert trimmed(torch.tensor([0, 5, 0, 6, 0, 0]), 0).tolist() == [0, 5, 0, 6]
    assert trimmed(torch.tensor([0, 0]), 0).tolist() == [0, 0] and trimmed(torch.tensor([7]), 0).tolist() == [7]
