"""Files of a session in a fresh grading container: whose they are and who may read them."""

from datetime import UTC, datetime, timedelta
from importlib import resources

from sandbox_server.grading.carrying import place
from sandbox_server.sandbox.base import ContainerSpec, Role, Sandbox
from sandbox_server.sandbox.docker.runtime import DockerRuntime

_IMAGE = "sandbox-samples/base:latest"
_CARRY = resources.files("sandbox_server.scoring").joinpath("carry.bash").read_text()
_TREE = "mkdir -p /app/deep/er && echo old >/app/deep/er/file && chown nobody /app/deep && chmod 775 /app/deep"
_LOOK = 'cd / && find "$@" -printf "%m %u %y %p\\n" | LC_ALL=C sort -k 4'


def _spec() -> ContainerSpec:
    deadline = datetime.now(UTC) + timedelta(minutes=5)
    return ContainerSpec(_IMAGE, Role.PREPARE, "", deadline, with_shell=False)


async def _run(sandbox: Sandbox, script: str, *words: str) -> bytes:
    done = await sandbox.exec(["bash", "-c", script, "bash", *words], timeout_s=60)
    assert done.exit_code == 0, done.stderr.text()
    return done.stdout.head + done.stdout.tail


async def test_folders_on_the_way_stay_as_they_were(runtime: DockerRuntime) -> None:
    """Tests that run as another user than root cannot read what the agent changed in a folder of the image."""
    sandbox, fresh = [await runtime.create(_spec()) for _ in range(2)]
    try:
        for one in (sandbox, fresh):
            await _run(one, _TREE)
        since = (await _run(sandbox, "sleep 1.1; date +@%s; sleep 1.1")).decode().strip()
        await _run(
            sandbox, "echo new >/app/deep/er/file; mkdir -p /made/by && chmod 750 /made/by && echo x >/made/by/it"
        )
        files = await _run(sandbox, _CARRY, "", since, "/app", "/app", "/made/by")
        applied = await place(fresh, files, ["/app", "/made/by"], timeout_s=60)
        assert not applied.refused, applied
        assert (await _run(fresh, _LOOK, "app", "made")).decode().splitlines() == [
            "755 root d app",
            "775 nobody d app/deep",
            "755 root d app/deep/er",
            "644 root f app/deep/er/file",
            "755 root d made",
            "750 root d made/by",
            "644 root f made/by/it",
        ]
        assert await _run(fresh, "cat /app/deep/er/file") == b"new\n"
    finally:
        for one in (sandbox, fresh):
            await runtime.remove(one.container_id)
