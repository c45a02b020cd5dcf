"""Files of a session, and of its services, in a fresh grading container: whose they are and who may read them."""

from datetime import UTC, datetime, timedelta
from importlib import resources

from sandbox_server.catalogue.instance import Artifact, Collect, HarborGrader
from sandbox_server.grading.carrying import place
from sandbox_server.sandbox.base import ContainerSpec, Role, Sandbox
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from sandbox_server.sandbox.services import ServiceSpec
from sandbox_server.scoring import task_artifacts

_IMAGE = "sandbox-samples/base:latest"
_CARRY = resources.files("sandbox_server.scoring").joinpath("carry.bash").read_text()
_TREE = "mkdir -p /app/deep/er && echo old >/app/deep/er/file && chown nobody /app/deep && chmod 775 /app/deep"
_LOOK = 'cd / && find "$@" -printf "%m %u %y %p\\n" | LC_ALL=C sort -k 4'


def _spec(*services: ServiceSpec) -> ContainerSpec:
    deadline = datetime.now(UTC) + timedelta(minutes=5)
    return ContainerSpec(_IMAGE, Role.PREPARE, "", deadline, with_shell=False, services=services)


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


async def test_only_the_paths_of_a_grading_are_written(runtime: DockerRuntime) -> None:
    """A separate verifier sees the whole work directory of a step, or loses files of its own image there."""
    sandbox, fresh = [await runtime.create(_spec()) for _ in range(2)]
    try:
        await _run(fresh, "mkdir -p /app/out /app/all && echo own | tee /app/own /app/out/own /app/all/own >/dev/null")
        since = (await _run(sandbox, "mkdir -p /app/out /app/all; sleep 1.1; date +@%s; sleep 1.1")).decode().strip()
        await _run(sandbox, "cd /app && echo new | tee new own out/a out/b all/c >/dev/null")
        files = await _run(sandbox, _CARRY, "", since, "/app", "/app")
        applied = await place(fresh, files, ["/app/out/a", "/app/all"], timeout_s=60)
        assert not applied.refused, applied
        assert (await _run(fresh, "cd /app && grep -r . | LC_ALL=C sort")).decode().splitlines() == [
            "all/c:new",  # a whole folder is as in the session
            "out/a:new",
            "out/own:own",
            "own:own",
        ]
    finally:
        for one in (sandbox, fresh):
            await runtime.remove(one.container_id)


_SERVED = """
mkdir -p /srv/kept/folder && cd /srv/kept
echo 1 >folder/one; ln folder/one two; ln -s /etc/passwd out; mkfifo pipe
cp /bin/true su && chmod 4755 su && head -c 300000 /dev/urandom >large
sleep 60
"""


async def test_what_services_show_is_added(runtime: DockerRuntime) -> None:
    """Tests see nothing of a service, another's files, or a program that makes whoever runs it root."""
    service = ServiceSpec("kept", _IMAGE, command=("bash", "-c", _SERVED))
    sandbox = await runtime.create(_spec(service))
    fresh = await runtime.create(_spec())
    grader = HarborGrader(
        tests="",
        carried=("/app",),
        collect=(
            Collect(command="id -un >/srv/kept/folder/who", service="kept", user="nobody"),  # may not write there
            Collect(command="id -un >/tmp/who; sleep 60", service="kept", user="nobody", timeout_s=0.5),
            Collect(command="cp /tmp/who /srv/kept/folder/who", service="kept"),
            Collect(command="true", service="kept", user="ghost"),  # what the container lacks is no fault of the engine
        ),
        artifacts=tuple(
            Artifact(service=name, path=path)
            for name, path in [("kept", "/srv/kept"), ("kept", "/none"), ("kept", "/etc/hostname"), ("gone", "/x")]
        ),
    )
    try:
        bounds = task_artifacts.Bounds(timeout_s=20, max_bytes=1 << 20)
        found = await task_artifacts.of_services(runtime.services, sandbox.container_id, grader, bounds)
        assert [why.partition(" is left")[0] for why in found.left_out] == [
            "/none of the service kept does not exist",
            "/x of the service gone",
        ]
        files = task_artifacts.added(b"", found.archive)
        roots = ["/app", "/srv/kept", "/none"]
        applied = await place(fresh, files, roots, timeout_s=60)
        assert not applied.refused, applied
        assert (await _run(fresh, _LOOK, "srv/kept")).decode().splitlines() == [
            "755 root d srv/kept",
            "755 root d srv/kept/folder",
            "644 root f srv/kept/folder/one",
            "644 root f srv/kept/folder/who",
            "644 root f srv/kept/large",
            "777 root l srv/kept/out",
            "755 root f srv/kept/su",
            "644 root f srv/kept/two",
        ]
        assert await _run(fresh, "cat /srv/kept/folder/who /srv/kept/two") == b"nobody\n1\n"
        bounds = task_artifacts.Bounds(timeout_s=20, max_bytes=200_000)
        less = await task_artifacts.of_services(runtime.services, sandbox.container_id, grader, bounds)
        assert "/srv/kept of the service kept is left out: with it" in less.left_out[0]
    finally:
        for one in (sandbox, fresh):
            await runtime.remove(one.container_id)
