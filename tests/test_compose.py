"""The compose file, run for real: images built here, the server healthy, Redis and PostgreSQL behind it."""

import json
import secrets
import socket

import httpx
import pytest

from tests.deployment import BASE_IMAGE, BUILD_TIMEOUT_S, SERVER_IMAGE, becomes_healthy, output


@pytest.fixture(scope="module")
def compose(deployed_images, compose_command, tmp_path_factory):
    """The command with its environment, and a setting that the file does not pass on."""
    more = tmp_path_factory.mktemp("compose") / "docker-compose.override.yml"
    service = {"environment": {"SANDBOX_BOX_EGRESS": "192.0.2.1:80"}}
    more.write_text(json.dumps({"version": "3.8", "services": {"server": service}}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    name = f"sandbox-test-{secrets.token_hex(4)}"
    environment = {
        "BASE_IMAGE": BASE_IMAGE,
        "COMPOSE_FILE": f"docker-compose.yml:{more}",
        "COMPOSE_PROJECT_NAME": name,
        "SANDBOX_NODE_ID": name,
        "SANDBOX_PORT": str(port),
        "SANDBOX_BIND": "127.0.0.1",
        "SANDBOX_API_KEYS": "",
        "SANDBOX_ALLOW_INSECURE": "0",
        "SANDBOX_DATABASE_URL": "postgresql://sandbox:sandbox@postgres/sandbox",
    }

    def run(*arguments: str, **more: str) -> str:
        return output(*compose_command, "--profile", "postgres", *arguments, **environment | more)

    yield run, environment
    run("down", "--volumes", "--remove-orphans")


@pytest.mark.timeout(BUILD_TIMEOUT_S)
def test_up_is_ready_and_stays_on_loopback(compose, engine):
    """A compose file that starts something, but not a working server, is worth nothing to whoever runs the hosts."""
    run, environment = compose
    run("up", "-d")
    base = f"http://127.0.0.1:{environment['SANDBOX_PORT']}"
    server = engine.containers.get(run("ps", "-q", "server").strip())
    assert becomes_healthy(server, timeout_s=300), server.logs(tail=50).decode(errors="replace")
    ready = httpx.get(f"{base}/readyz", timeout=10.0)
    assert ready.status_code == 200, ready.text
    assert server.attrs["HostConfig"]["UsernsMode"] == "host", "an engine that remaps users would not let it in"
    published = server.attrs["NetworkSettings"]["Ports"]["5000/tcp"]
    assert [binding["HostIp"] for binding in published] == ["127.0.0.1"]
    for service in ("redis", "postgres"):
        ports = engine.containers.get(run("ps", "-q", service).strip()).attrs["NetworkSettings"]["Ports"]
        assert not any(ports.values()), f"{service} is published"


@pytest.mark.timeout(BUILD_TIMEOUT_S)
def test_refused_egress_is_counted(compose, engine, sample_instances):
    """The server cannot enter a network namespace from its container: what a policy tries there stays unseen."""
    run, environment = compose
    run("up", "-d")
    server = engine.containers.get(run("ps", "-q", "server").strip())
    assert becomes_healthy(server, timeout_s=300), server.logs(tail=50).decode(errors="replace")
    row = sample_instances["timespan"]
    row = {**row, "instance_id": "samples__open-1", "sandbox": {**row["sandbox"], "network": "bridge"}}
    imports = ["sh", "-c", 'printf %s "$0" >/tmp/open.jsonl && sandbox-server instances import /tmp/open.jsonl']
    done = server.exec_run([*imports, json.dumps(row)])
    assert done.exit_code == 0, done.output
    with httpx.Client(base_url=f"http://127.0.0.1:{environment['SANDBOX_PORT']}", timeout=120) as api:
        sid = api.post("/start_instance", json={"instance_hash": row["instance_id"]}).json()["sid"]
        command = "timeout 9 bash -c 'exec 3<>/dev/tcp/198.18.0.9/80'"
        call = f"<function=execute_bash>\n<parameter=command>{command}</parameter>\n</function>"
        seen = api.post("/process_action", json={"sid": sid, "content": call}).json()["content"]
        assert "No route to host" in seen
        api.post("/postprocess", json={"sid": sid}).raise_for_status()
        assert api.get(f"/v1/sessions/{sid}").json()["egress_refused"] >= 1


@pytest.mark.timeout(BUILD_TIMEOUT_S)
@pytest.mark.parametrize(
    "bind, insecure, starts",
    [("0.0.0.0", "0", False), ("", "0", False), ("127.0.0.1", "0", True), ("0.0.0.0", "1", True)],
)
def test_opening_it_without_keys_takes_two_steps(compose, engine, bind, insecure, starts):
    """One careless variable must not put a service that runs any command on the network."""
    settings = {"SANDBOX_BIND": bind, "SANDBOX_ALLOW_INSECURE": insecure, "SANDBOX_NODE_ID": "sandbox-test-open"}
    user = "10001" if bind == "127.0.0.1" else ""  # one of them also gives up root
    settings["SANDBOX_RUN_AS"] = user
    socket_volume = ["/var/run/docker.sock:/var/run/docker.sock"]
    container = engine.containers.run(
        SERVER_IMAGE, environment=settings, volumes=socket_volume, network_mode="none", detach=True
    )
    try:
        if starts:
            assert json.loads(http_get_inside(container)) is not None
            status = container.exec_run(["cat", "/proc/1/status"]).output.decode()
            assert ("CapBnd:\t0000000000000000" in status) == bool(user)
            assert f"\nUid:\t{user or 0}\t" in status
        else:
            assert container.wait(timeout=60)["StatusCode"] != 0
            assert b"SANDBOX_API_KEYS" in container.logs()
    finally:
        container.remove(force=True, v=True)


def http_get_inside(container) -> bytes:
    """/healthz as the container itself sees it, once the server listens."""
    ask = (
        "import time, urllib.request\n"
        "for _ in range(1200):\n"
        "    try: print(urllib.request.urlopen('http://127.0.0.1:5000/healthz', timeout=2).read().decode()); break\n"
        "    except OSError: time.sleep(0.1)\n"
        "else: raise SystemExit('no answer in 120 s')\n"
    )
    done = container.exec_run(["python", "-c", ask])
    assert done.exit_code == 0, (done.output, container.logs(tail=50))
    return done.output
