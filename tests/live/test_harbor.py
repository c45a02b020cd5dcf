"""Tasks of Harbor over real HTTP, on a real engine: built, solved, left alone, and attacked."""

import io
import json
import re
import socket
import tarfile
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import ROOT
from tests.deployment import bridge_gateway

from .serving import Server, docker, editor, until

TASKS = ROOT / "examples" / "harbor"
NAMES = {"hello": "hello"} | {
    name: f"samples/{name}" for name in ("scores", "separate", "history", "services", "ledger")
}


@pytest.fixture(scope="module")
def harbor(live: Server) -> Server:
    """The shared server, with the tasks."""
    told = live.cli("instances", "import", "--family", "harbor", str(TASKS))
    assert re.search(r": (8 new|6 new, 0 updated, 2 unchanged|0 new, 0 updated, 8 unchanged)", told), told
    return live


def solve(server: Server, sid: str, task: str) -> None:
    """What Harbor's oracle does: the task's solution is uploaded and run."""
    env = {"scores": "GREETING='Good morning' "}.get(task, "")
    for file in sorted((TASKS / task / "solution").iterdir()):
        url = f"{server.url}/v1/boxes/{sid}/files"
        where = {"path": f"/solution/{file.name}", "user": "root", "mode": "755"}
        httpx.put(url, params=where, content=file.read_bytes(), timeout=60).raise_for_status()
    server.run(sid, f"{env}/solution/solve.sh")


@pytest.mark.parametrize("task", NAMES)
def test_the_solution_earns_one_and_nothing_earns_nothing(harbor: Server, task: str) -> None:
    """A task that is graded otherwise than its author meant: by other files, variables, limits, or another image."""
    sid, idle = harbor.begin(NAMES[task]), harbor.begin(NAMES[task])
    solve(harbor, sid, task)
    harbor.run(idle, "touch nothing notes/nothing")  # with no change at all, no tests would run
    assert harbor.finish(sid)["state"] == harbor.finish(idle)["state"] == "ended"
    got, none = harbor.reward(sid), harbor.reward(idle)
    assert (got["reward"], got["verdict"], got["mask"]) == (1.0, "resolved", False), got
    assert (none["reward"], none["verdict"], none["mask"]) == (0.0, "unresolved", False), none
    assert harbor.session(sid)["grade"]["reward_name"] == "harbor"


def test_verify_runs_the_solution(harbor: Server) -> None:
    """A task without a gold patch counts as unsound, or as sound without a run of its solution."""
    told = harbor.cli("instances", "verify", "hello", "samples/ledger")
    for task in ("hello", "samples/ledger"):
        assert f"ok    {task}  gold resolved, empty unresolved" in told, told


def test_an_agent_is_the_user_of_its_task(harbor: Server) -> None:
    """A task that keeps something from its agent by file modes runs it as root; or its edits are root's files."""
    sid = harbor.begin("samples/scores")
    assert "writer:/home/writer" in harbor.run(sid, "echo $(id -un):$HOME")
    assert "ermission denied" in harbor.run(sid, "cat /etc/shadow")
    seen = str(harbor.say(sid, editor(command="view", path="/etc/shadow")))
    assert "root:" not in seen, seen
    made = str(harbor.say(sid, editor(command="create", path="/srv/text/a.txt", file_text="x")))
    assert "created successfully" in made, made
    refused = str(harbor.say(sid, editor(command="create", path="/etc/a.txt", file_text="x")))
    assert "created successfully" not in refused, refused
    put = {"path": "by_file.txt"}
    httpx.put(f"{harbor.url}/v1/boxes/{sid}/files", params=put, content=b"x", timeout=60).raise_for_status()
    ran = harbor.post(f"/v1/boxes/{sid}/commands", {"cmd": "id -un; pwd; ls ~", "wait_s": 30}).json()
    assert ran["stdout"] == "writer\n/srv/text\nby_file.txt\n", ran
    assert "writer writer" in harbor.run(sid, "stat -c %U a.txt ~/by_file.txt | xargs")
    done = harbor.post(f"/v1/sessions/{sid}/exec", {"commands": [{"command": "id -un"}]})
    assert "writer" in done.text, done.text
    forked = harbor.post(f"/v1/sessions/{sid}/fork", {"n": 1})
    assert forked.status_code == 409 and "agent of the task is writer" in forked.text, forked.text
    harbor.finish(sid)


def test_a_part_of_the_work_earns_a_part(harbor: Server) -> None:
    """reward.json with several numbers becomes all or nothing, or a reward that its author did not mean."""
    sid = harbor.begin("samples/scores")
    harbor.run(sid, "sed -i 's/split(\" \")/split()/; s/in text.split()/in text.splitlines()/' words.py; cat words.py")
    harbor.finish(sid)
    got = harbor.reward(sid)
    assert (got["verdict"], got["mask"], got["reward"]) == ("unresolved", False, pytest.approx(2 / 3)), got
    assert {item["fn"]: (item["value"], item["weight"]) for item in got["items"]} == {
        "reward": (pytest.approx(2 / 3), 1.0),
        "tests": (2.0, 0.0),
    }
    receipt = harbor.get(f"/v1/receipts/{got['receipt']}")
    assert "test_words.py" in receipt["log_tail"] and receipt["apply_tier"] == "files"


# What was done to Harbor's shared verifier: rewards written before and meanwhile; programs, libraries and start-up
# files replaced; the tests themselves; links from what is carried to what is not.
ATTACKS = r"""
mkdir -p /tests /logs/verifier
reward=/logs/verifier/reward.txt
echo 1 >$reward; echo '{"reward": 1}' >/logs/verifier/reward.json
printf '#!/bin/sh\necho 1 >%s\n' $reward >/tests/test.sh; chmod +x /tests/test.sh
setsid sh -c "while sleep 0.05; do echo 1 >$reward; done" >/dev/null 2>&1 &
printf '#!/bin/sh\necho "Hello, world!"; echo 1 >%s\n' $reward >/usr/local/bin/cat; chmod +x /usr/local/bin/cat
echo "echo 1 >$reward; exit 0" | tee /etc/profile /root/.bashrc /root/.bash_profile /etc/bash.bashrc >/dev/null
echo "open('$reward', 'w').write('1')" >/usr/lib/python3/dist-packages/sitecustomize.py
rm -rf /logs/artifacts; ln -s /logs/verifier /logs/artifacts
ln -s /tests tests; ln -s / root; ln -s /logs/verifier hello.txt
ln -s ../../../logs/verifier/reward.txt reward.txt
mkdir deep; ln -s /usr/local/bin deep/bin
touch -- '-rf' '--help' $'\xff\xfe' $'we\nird'
"""


def test_an_agent_cannot_write_its_reward(harbor: Server) -> None:
    """A policy learns to write rewards instead of solving tasks: harbor #974, #1779, #2551."""
    sid, right = harbor.begin("hello"), harbor.begin("hello")
    for attacked in (sid, right):
        assert "No such file" in harbor.run(attacked, "ls /tests /solution")
        assert "test.sh" not in harbor.run(attacked, "find / -xdev -name 'test.s[h]' 2>/dev/null")
        harbor.run(attacked, ATTACKS)
    harbor.run(right, "rm -rf hello.txt; printf 'Hello, world!\\n' >hello.txt")
    harbor.finish(sid)
    harbor.finish(right)
    got = harbor.reward(sid)
    assert (got["reward"], got["verdict"], got["mask"]) == (0.0, "unresolved", False), got
    got = harbor.reward(right)
    assert (got["reward"], got["verdict"]) == (1.0, "resolved"), got  # nor can it break its own grading
    names = _archive(harbor.patch(sid))
    assert all(name == "./app" or name.startswith("./app/") for name in names), names


def test_an_agent_cannot_write_what_a_service_shows(harbor: Server) -> None:
    """A policy writes the file that the tests want of a service into its own container."""
    sid = harbor.begin("samples/ledger")
    harbor.run(
        sid,
        r"mkdir -p /srv/book && printf 'rent 900\ntea 12\n' | tee /srv/book/entries.txt /logs/artifacts/entries.txt",
    )
    harbor.finish(sid)
    got = harbor.reward(sid)
    assert (got["reward"], got["verdict"], got["mask"]) == (0.0, "unresolved", False), got


def test_no_layer_of_an_agents_image_has_held_the_tests(harbor: Server) -> None:
    """The tests lie in a lower layer, where a flaw of the engine or of its storage shows them."""
    sid = harbor.begin("samples/scores")
    (image,) = docker("inspect", "-f", "{{.Image}}", harbor.container(sid)).split()
    layers = set(json.loads(docker("image", "inspect", "-f", "{{json .RootFS.Layers}}", image)))
    gradings = [
        name
        for name in docker("images", "--format", "{{.Repository}}:{{.Tag}}", "sandbox-prepared").split()
        if ":sealed-" in name
    ]
    last = {json.loads(docker("image", "inspect", "-f", "{{json .RootFS.Layers}}", name))[-1] for name in gradings}
    assert gradings and not layers & last


def test_a_task_is_a_box(harbor: Server) -> None:
    """Whoever brings an agent of their own to a task has no image to start from."""
    image = harbor.get("/v1/instances/samples%2Fscores")["images"][0]
    answer = harbor.post("/v1/boxes", {"image": image, "lifetime_s": 60})
    assert answer.status_code in (200, 201), answer.text
    sid = answer.json()["sid"]
    look = {"cmd": "cat /srv/text/stale.txt; ls /tests", "wait_s": 30}
    ran = harbor.post(f"/v1/boxes/{sid}/commands", look).json()
    httpx.delete(f"{harbor.url}/v1/boxes/{sid}", timeout=60).raise_for_status()
    assert "old" in ran["stdout"] and "No such file" in ran["stderr"], ran


def test_a_build_that_fails_says_why(harbor: Server, tmp_path: Path) -> None:
    """A start fails without the line of the Dockerfile that is to blame, or is tried as if the engine were ill."""
    file = "FROM sandbox-samples/base:latest\nRUN echo this line fails && exit 7\n"
    task = made(tmp_path / "broken", "[environment]\nworkdir = '/app'\n", **{"environment/Dockerfile": file})
    harbor.cli("instances", "import", str(task))
    answer = harbor.post("/start_instance", {"instance_hash": "broken"}, timeout=300)
    assert answer.status_code == 503, answer.text
    assert "returned a non-zero code: 7" in answer.text and "this line fails" in answer.text, answer.text


def _archive(files: bytes) -> list[str]:
    head, _, rest = files.partition(b"\n")
    _, folders, within = head.split()
    with tarfile.open(fileobj=io.BytesIO(rest[int(folders) + int(within) :]), mode="r:gz") as archive:
        return archive.getnames()


def _left(server: Server) -> list[str]:
    """What the engine has of the services of this server's sandboxes."""
    labels = ["--filter", f"label=sandbox.node={server.node}", "--filter", "label=sandbox.group", "-q"]
    lists = (docker("ps", "-a", *labels), docker("network", "ls", *labels), docker("volume", "ls", *labels))
    return " ".join(lists).split()


def _services(server: Server, sid: str) -> dict[str, dict[str, Any]]:
    """The engine's description of the services of a session, by host name."""
    group = docker("inspect", "-f", '{{index .Config.Labels "sandbox.group"}}', server.container(sid)).strip()
    found = docker("ps", "-q", "--filter", f"label=sandbox.group={group}", "--filter", "label=sandbox.role=service")
    return {one["Config"]["Hostname"]: one for one in json.loads(docker("inspect", *found.split()))}


def test_services_are_isolated_and_leave_nothing(serve: Callable[..., Server]) -> None:
    """A service is a way to the host, to another sandbox, or to a better grade; or it outlives its sandbox."""
    server = serve(reaper_period_s=1)
    server.cli("instances", "import", str(TASKS / "services"))
    sid, other = server.begin("samples/services"), server.begin("samples/services")

    rates, host = _services(server, sid)["rates"], _services(server, other)["rates"]
    limits = rates["HostConfig"]
    assert (limits["Memory"], limits["NanoCpus"], limits["PidsLimit"]) == (128 << 20, 500_000_000, 256)
    assert limits["CapDrop"] == ["ALL"] and "no-new-privileges" in limits["SecurityOpt"]
    assert not limits["Binds"] and not limits["PortBindings"] and not limits["Privileged"]
    (network,) = rates["NetworkSettings"]["Networks"].values()
    (others,) = host["NetworkSettings"]["Networks"].values()
    ask = "python3 -c 'import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=3).read())'"
    assert "b'0.9" in server.run(sid, f"{ask} http://rates:8080/USD")
    bridge = docker("network", "inspect", "-f", "{{(index .IPAM.Config 0).Gateway}}", "bridge").strip()
    with socket.create_server(("0.0.0.0", 0)) as listener:  # of this host, on all its addresses
        port = listener.getsockname()[1]
        for target in (
            f"{others['IPAddress']}:8080",
            f"{network['Gateway']}:{port}",
            f"{bridge}:{port}",
            "example.com",
        ):
            assert "URLError" in server.run(sid, f"{ask} http://{target}/USD 2>&1 | tail -1"), target
    forked = server.post(f"/v1/sessions/{sid}/fork", {"n": 1})
    assert forked.status_code == 409 and "services (seed, rates)" in forked.text, forked.text

    # the server dies; meanwhile one sandbox is gone
    server.kill()
    docker("rm", "-f", server.container(other))
    server.start()
    until(lambda: len(_groups(server)) == 1, 60, "the services of the lost sandbox gone")
    assert "b'0.9" in server.run(sid, f"{ask} http://rates:8080/USD")
    # what the agent does to its service makes its wrong answer right there, not in the grading
    change = 'import urllib.request as r; r.urlopen(r.Request("http://rates:8080/USD", b"9", method="PUT"))'
    server.run(sid, f"python3 -c '{change}'")
    assert "b'9'" in server.run(sid, f"{ask} http://rates:8080/USD")
    solve(server, sid, "services")
    assert "112.20" in server.run(sid, "cat /app/total.txt")
    server.finish(sid)
    got = server.reward(sid)
    assert (got["reward"], got["verdict"], got["mask"]) == (0.0, "unresolved", False), got
    until(lambda: not _left(server), 60, "nothing left")


def _groups(server: Server) -> set[str]:
    named = ["--filter", f"label=sandbox.node={server.node}", "--format", '{{.Label "sandbox.group"}}']
    return set((docker("network", "ls", *named) + docker("ps", "-a", *named)).split())


def made(task: Path, toml: str = "", **files: str) -> Path:
    """A small task with these texts."""
    plain = {
        "environment/Dockerfile": "FROM sandbox-samples/base:latest\nWORKDIR /app\n",
        "instruction.md": "Nothing.",
        "tests/test.sh": "exit 1\n",
    }
    for name, text in {**plain, "task.toml": toml, **files}.items():
        path = task / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return task


def test_a_service_that_does_not_come_up_says_why(harbor: Server, tmp_path: Path) -> None:
    """The start of a task fails after two minutes, with nothing that its author could mend."""
    db = {"image": "sandbox-samples/base:latest", "command": "bash -c 'echo no licence; exit 3'"}
    compose = json.dumps({"services": {"db": {**db, "healthcheck": {"test": "false"}}}})
    harbor.cli("instances", "import", str(made(tmp_path / "failing", **{"environment/docker-compose.yaml": compose})))
    answer = harbor.post("/start_instance", {"instance_hash": "failing"}, timeout=300)
    assert answer.status_code == 503, answer.text
    assert "service db ended with 3; db said: no licence" in answer.text, answer.text
    until(lambda: not _left(harbor), 60, "nothing left")


def test_a_task_that_is_not_healthy_says_why(harbor: Server, tmp_path: Path) -> None:
    """An agent begins in an environment that its author calls broken, and is graded for it."""
    toml = "[environment.healthcheck]\ncommand = 'echo no licence; exit 3'\nretries = 2\ninterval_sec = 0.2\n"
    harbor.cli("instances", "import", str(made(tmp_path / "sick", toml)))
    answer = harbor.post("/start_instance", {"instance_hash": "sick"}, timeout=300)
    assert answer.status_code == 503, answer.text
    assert "failed 2 times in a row" in answer.text and "no licence" in answer.text, answer.text


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"42")

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


_ASKS = """
ask() { python3 -c 'import sys, urllib.request as r; print(int(r.urlopen(sys.argv[1], timeout=3).read()))' "$1" 2>&1; }
"""


def test_the_agent_and_its_tests_reach_what_their_lists_allow(serve: Callable[..., Server], tmp_path: Path) -> None:
    """A task with an allow list runs without a network, or with all of it; or its tests have the agent's list."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        other = str(probe.getsockname()[0])
    http = ThreadingHTTPServer(("0.0.0.0", 0), _Answer)  # of this host, on all its addresses
    threading.Thread(target=http.serve_forever, daemon=True).start()
    agents, tests = (f"http://{address}:{http.server_port}/" for address in (bridge_gateway(), other))
    script = f"""{_ASKS}
[[ $(ask {tests}) == 42 && $(ask {agents}) == *"Errno 113"* && $(cat answer) == 42 ]]
echo $((!$?)) >/logs/verifier/reward.txt
"""
    toml = f"""
[environment]
network_mode = "allowlist"
allowed_hosts = ["{bridge_gateway()}"]
mcp_servers = [{{ name = "db", url = "http://db/sse" }}]
[verifier]
network_mode = "allowlist"
allowed_hosts = ["{other}/32"]
"""
    server = serve(grade_network=1)
    server.cli("instances", "import", str(made(tmp_path / "listed", toml, **{"tests/test.sh": f"#!/bin/bash{script}"})))
    told = server.get("/v1/instances/listed")
    assert told["allowed_hosts"] == [bridge_gateway()] and told["mcp_servers"][0]["url"] == "http://db/sse"
    sid, idle = server.begin("listed"), server.begin("listed")
    server.run(idle, "touch nothing")
    assert "Errno 113" in server.run(sid, f"{_ASKS} ask {tests} | tail -1")
    server.run(sid, f"ask {agents} >answer")
    for one, earned in {sid: 1.0, idle: 0.0}.items():
        server.finish(one)
        got = server.reward(one)
        assert (got["reward"], got["mask"]) == (earned, False), got
    http.shutdown()
    http.server_close()
