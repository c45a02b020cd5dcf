"""NeMo Gym's own `AsyncSandbox` and `Sandbox` over our provider: `roll_nemo_gym.py < job`, outcomes on stdout.

Runs in an environment of its own, with the release, sandbox_client and nothing else of NeMo Gym's dependencies.
"""

import asyncio
import json
import os
import sys
import tempfile
import tomllib
from dataclasses import asdict
from importlib.metadata import EntryPoint
from pathlib import Path

import sandbox_client
from nemo_gym.sandbox import (
    AsyncSandbox,
    Sandbox,
    SandboxCreateError,
    SandboxSpec,
    register_provider,
    resolve_provider_config,
)
from sandbox_client.nemo_gym import SandboxServiceProvider

job = json.load(sys.stdin)
os.environ["SANDBOX_URL"] = job["url"]
FOLDER = tempfile.TemporaryDirectory()
UP, DOWN = Path(FOLDER.name, "up"), Path(FOLDER.name, "down")
UP.write_bytes(b"\0\xff")
GROUP = "nemo_gym.sandbox_providers"


def entry_point() -> None:
    """As NeMo Gym does where the client is installed; here it is only on the path."""
    project = tomllib.loads((Path(sandbox_client.__file__).parents[1] / "pyproject.toml").read_text())
    for name, value in project["project"]["entry-points"][GROUP].items():
        register_provider(name, EntryPoint(name, value, GROUP).load())


async def played(provider: dict) -> dict:
    """A box from its creation to its end."""
    spec = SandboxSpec(
        image=job["image"],
        ttl_s=600,
        workdir="/work/here",
        env={"GIVEN": "1"},
        files={"/work/a": "é"},
        metadata={"a": "b"},
    )
    async with AsyncSandbox(provider, spec) as sandbox:
        await sandbox.start()
        told = {
            "sid": sandbox._handle.sandbox_id,
            "status": await sandbox.status(),
            "done": asdict(
                await sandbox.exec("pwd; echo $GIVEN $MORE; cat /work/a; echo wrong >&2; exit 3", env={"MORE": "2"})
            ),
            "user": asdict(await sandbox.exec("id -un; pwd", user="nobody", cwd="/tmp")),
            "slow": asdict(await sandbox.exec("echo begun; sleep 60", timeout_s=1)),
        }
        await sandbox.upload(UP, "/work/deep/er")
        await sandbox.download("/work/deep/er", DOWN)
        await sandbox.pause()
        told["paused"] = await sandbox.status()
        await sandbox.resume()
        told["resumed"] = (await sandbox.exec("cat /work/a")).stdout
        provider, handle = sandbox._provider, sandbox._handle
        told_elsewhere = await provider.serialize_handle(handle)
        misdirected = SandboxServiceProvider(url=f"{job['url']}/not/here")
        told["misdirected"] = await misdirected.status(await misdirected.connect(told_elsewhere))
        await provider.close(await provider.connect(told_elsewhere))  # as by another process
        lost = await sandbox.exec("true")
        told |= {"lost": asdict(lost), "ended": await sandbox.status()}
        await provider.close(handle)
        told["closed"] = [await sandbox.status(), (await sandbox.exec("true")).error_type]
    return told


def refused(provider: dict) -> str:
    """Its blocking twin, with an image that no box may have."""
    try:
        with Sandbox(provider, SandboxSpec(image="no/such:image")) as sandbox:
            sandbox.start()
    except SandboxCreateError as error:
        return str(error)
    return ""


entry_point()
configured = resolve_provider_config(
    "sandbox", {"sandbox": {"sandbox_service": {"run": "nemo"}, "default_metadata": {}}}
)
box = asyncio.run(played(configured))
json.dump({"box": box, "copied": list(DOWN.read_bytes()), "refused": refused(configured)}, sys.stdout)
