"""OpenHands' SDK, unmodified, as the agent of a session: `make clients`, not in CI, whose Python is too old for it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.conftest import ROOT

from .serving import Server, free_port, until

IMAGE = os.environ.get("SANDBOX_TEST_OPENHANDS", "")


@contextmanager
def model(*words: str) -> Iterator[str]:
    """The examples' endpoint without a model; its URL."""
    port = free_port()
    script = ROOT / "examples" / "scripted_policy.py"

    def listens() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/", trust_env=False).status_code == 501
        except httpx.TransportError:
            return False

    with subprocess.Popen([sys.executable, str(script), "--port", str(port), *words]) as run:
        try:
            until(listens, what="the scripted model")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            run.terminate()


@pytest.mark.skipif(not IMAGE, reason="SANDBOX_TEST_OPENHANDS names no image (make clients)")
@pytest.mark.timeout(1000)
@pytest.mark.parametrize(("words", "verdict"), [((), "resolved"), (("--wrong",), "unresolved")])
def test_openhands_works_in_a_session(serve: Callable[..., Server], words: tuple[str, ...], verdict: str) -> None:
    """OpenHands cannot read the session's tools, or acts on its own machine instead."""
    server = serve(api_keys="a-key")
    with model(*words) as url:
        settings = {"SANDBOX_API_KEY": "a-key", "LLM_BASE_URL": url}
        environment = [word for name, value in settings.items() for word in ("-e", f"{name}={value}")]
        folder = ["-v", f"{ROOT / 'examples' / 'agents'}:/agents:ro"]
        run = ["docker", "run", "--rm", "--network", "host", *environment, *folder, IMAGE, "timeout", "600"]
        agent = ["/opt/openhands/bin/python", "/agents/openhands_agent.py", server.url]
        done = subprocess.run([*run, *agent], capture_output=True, text=True, timeout=700, check=False)
    assert f"samples__ledger-12: {verdict}," in done.stdout, done.stdout + done.stderr
    assert not server.containers()
