"""Commands of the deployments under test, and waiting for what they bring up."""

import json
import os
import subprocess
import time
from ipaddress import ip_network
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD_TIMEOUT_S = 900
BASE_IMAGE = "sandbox-samples/base:latest"
"""What the images are built on here, so that no registry is needed."""
SERVER_IMAGE = "sandbox-server:latest"
BALANCER_IMAGE = "sandbox-balancer:latest"


def output(*command: str, timeout_s: float = BUILD_TIMEOUT_S, **environment: str) -> str:
    """What a command prints, run in the top folder."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def bridge_gateway() -> str:
    """Where containers on the default bridge reach this host."""
    config = json.loads(output("docker", "network", "inspect", "bridge"))[0]["IPAM"]["Config"][0]
    # a daemon tells the gateway only of a bridge that it has found, not of one that it has just made
    return str(config.get("Gateway") or next(ip_network(config["Subnet"]).hosts()))


def becomes_healthy(container, *, timeout_s: float = 90.0) -> bool:
    """Whether its health check passes in time."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end and container.status == "running":
        container.reload()
        if container.attrs["State"]["Health"]["Status"] == "healthy":
            return True
        time.sleep(0.5)
    return False
