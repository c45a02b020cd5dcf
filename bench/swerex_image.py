"""The sample image with SWE-ReX's server installed, as its Docker deployment expects it.

SWE-ReX's own way (`pipx run` at every start, or a Python compiled in a build) needs the network at each start, or
minutes once; installed beforehand is its best case. Kept between runs as `sandbox-bench/swerex:<sample>`, and rebuilt
when the sample image or the lock file changes.
"""

import asyncio
import hashlib
import sys
import tempfile
from pathlib import Path

from bench.containers import DockerFailed, docker

_LOCK = Path(__file__).resolve().parent.parent / "requirements" / "bench-swerex.txt"
_PIP = Path(__file__).parent / ".peers" / "swerex" / "bin" / "pip"
_LABEL = "sandbox.bench.content"
_SERVER = """#!/usr/bin/env python3
import sys
sys.path.insert(0, "/opt/swerex")
from swerex.server import main
main()
"""
_DOCKERFILE = """FROM {image}
COPY site /opt/swerex
COPY swerex-remote /usr/local/bin/
RUN chmod +x /usr/local/bin/swerex-remote && swerex-remote --version
LABEL {label}={content}
"""
_INSTALL_S = 300.0


async def with_swerex(image: str) -> str:
    """Return the name of the variant of `image`, building it if needed.

    Raises:
        DockerFailed: it cannot be built.

    """
    name = f"sandbox-bench/swerex:{image.rpartition('/')[2].partition(':')[0]}"
    base = await docker("image", "inspect", "-f", "{{.Id}}", image)
    content = hashlib.sha256((base + _LOCK.read_text() + _SERVER + _DOCKERFILE).encode()).hexdigest()
    if await docker("images", "-q", "--filter", f"label={_LABEL}={content}", name):
        return name
    version = await docker("run", "--rm", image, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    print(f"building {name}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        await _install(version, Path(folder) / "site")
        files = {"Dockerfile": _DOCKERFILE.format(image=image, label=_LABEL, content=content), "swerex-remote": _SERVER}
        for path, text in files.items():
            Path(folder, path).write_text(text)  # noqa: ASYNC240 - nothing else runs meanwhile
        old = await docker("images", "-q", name)
        await docker("build", "-q", "-t", name, folder, timeout_s=_INSTALL_S)
        if old:
            await docker("rmi", old, check=False)
    return name


async def _install(version: str, target: Path) -> None:
    """Fetch the locked wheels for the image's Python, which may differ from the host's."""
    options = ["-q", "--require-hashes", "--only-binary=:all:", "--python-version", version, "--target", str(target)]
    pip = await asyncio.create_subprocess_exec(_PIP, "install", *options, "-r", _LOCK)
    try:
        async with asyncio.timeout(_INSTALL_S):
            code = await pip.wait()
    finally:
        if pip.returncode is None:
            pip.kill()
            await pip.wait()
    if code:
        raise DockerFailed(f"pip could not fetch SWE-ReX for Python {version}")
