"""Plain Docker, as used by a trainer without a service: the command-line client, one process per call."""

import asyncio
import secrets
import subprocess

RUN = secrets.token_hex(4)
"""Id of this run; everything that it starts has it in its name or label, so that it can be found and removed."""
LABEL = f"sandbox.bench={RUN}"
_TIMEOUT_S = 120.0


class DockerFailed(RuntimeError):
    """A docker command failed or did not end; has its output."""


async def docker(*arguments: str, timeout_s: float = _TIMEOUT_S, check: bool = True, stdin: bytes | None = None) -> str:
    """Run a docker command, with `stdin` as its input, and return its output.

    Raises:
        DockerFailed: exit code other than 0 (with `check`), or it did not end in time.

    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "docker", *arguments, stdin=None if stdin is None else pipe, stdout=pipe, stderr=pipe
    )
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await process.communicate(stdin)
    except TimeoutError:
        raise DockerFailed(f"docker {' '.join(arguments)}: did not end within {timeout_s:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if check and process.returncode:
        raise DockerFailed(f"docker {' '.join(arguments)[:200]}: {err.decode(errors='replace')[-500:]}")
    return out.decode(errors="replace").strip()


async def run(image: str) -> str:
    """Start a container that waits, by `docker run -d`; return its id."""
    return await docker("run", "-d", "--init", "--network", "none", "--label", LABEL, image, "sleep", "7200")


async def execute(container: str, command: str, *, workdir: str = "/testbed") -> str:
    """Run a command by `docker exec`; its exit code is ignored, as for an agent."""
    return await docker("exec", "-w", workdir, container, "bash", "-c", command, check=False)


async def remove(*containers: str) -> None:
    """Kill and remove containers."""
    if containers:
        await docker("rm", "-f", *containers)


def sweep() -> list[str]:
    """Remove everything that this run left: by label, and the harness's containers, which have no label, by name.

    Returns the ids of containers that could not be removed.
    """
    left: list[str] = []
    for criterion in (f"label={LABEL}", f"name={RUN}"):
        listing = ["docker", "ps", "-aq", "--filter", criterion]
        try:
            found = subprocess.run(listing, capture_output=True, text=True, check=True, timeout=60).stdout.split()
            for container in found:
                removal = ["docker", "rm", "-f", container]
                if subprocess.run(removal, capture_output=True, check=False, timeout=60).returncode:
                    left.append(container)
        except subprocess.SubprocessError as error:  # the engine does not answer
            left.append(str(error))
    return left
