"""Measures a running server over HTTP, and plain docker beside it in the same run; prints a table.

    python bench/bench.py [--actions N] [--starts N]

Writes bench/results/latest.json: a list of {"name", "ours", "peer", "peer_name", "unit", "ratio", "n"}; `ratio` is
ours / peer, below 1 where we are quicker.
"""

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import httpx

from sandbox_server.catalogue.instance import instance_hash
from sandbox_server.cli.local_server import local_server

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = "ledger"  # for actions and starts; grading is measured on every sample of dialect openhands_xml


@dataclass(frozen=True)
class Figure:
    name: str
    ours: float
    peer: float
    peer_name: str
    n: int
    unit: str = "ms"

    def entry(self) -> dict[str, object]:
        return {**asdict(self), "ratio": round(self.ours / self.peer, 4)}

    def line(self) -> str:
        ours, peer = f"{self.ours:.2f} {self.unit}", f"{self.peer:.2f} {self.unit}"
        return f"{self.name:<36}{ours:>14}{peer:>14}{self.ours / self.peer:>9.3f}{self.n:>7}  {self.peer_name}"


def timed_ms(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) * 1000


def p99(values: list[float]) -> float:
    return quantiles(values, n=100, method="inclusive")[98]


def docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True).stdout.strip()


class Client:
    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=300.0)

    def post(self, path: str, **body: object) -> dict:
        return self.http.post(path, json=body).raise_for_status().json()

    def start(self, instance_id: str) -> str:
        return self.post("/start_instance", instance_hash=instance_hash(instance_id))["sid"]

    def bash(self, sid: str, command: str) -> str:
        content = f"<function=execute_bash>\n<parameter=command>\n{command}\n</parameter>\n</function>"
        return self.post("/process_action", sid=sid, content=content)["content"]


def actions(client: Client, row: dict, count: int) -> list[Figure]:
    """`true` in one session against `docker exec ... true` in a container of the same image."""
    sid = client.start(row["instance_id"])
    client.bash(sid, "true")
    ours = [timed_ms(lambda: client.bash(sid, "true")) for _ in range(count)]
    client.post("/postprocess", sid=sid)
    container = docker("run", "-d", "--init", "--network", "none", row["image"], "sleep", "600")
    try:
        peer = [timed_ms(lambda: docker("exec", container, "true")) for _ in range(max(20, count // 20))]
    finally:
        docker("rm", "-f", container)
    return [
        Figure("action `true`, p50", median(ours), median(peer), "docker exec", count),
        Figure("action `true`, p99", p99(ours), p99(peer), "docker exec", count),
    ]


def starts(client: Client, row: dict, count: int) -> list[Figure]:
    """A start against `docker run -d` plus one `docker exec`, taken in turn so that both meet the same machine."""
    ours, peer = [], []
    for _ in range(count):
        begin = time.perf_counter()
        sid = client.start(row["instance_id"])
        ours.append((time.perf_counter() - begin) * 1000)
        client.post("/postprocess", sid=sid)
        begin = time.perf_counter()
        container = docker("run", "-d", "--init", "--network", "none", row["image"], "sleep", "600")
        docker("exec", container, "true")
        peer.append((time.perf_counter() - begin) * 1000)
        docker("rm", "-f", container)
    return [Figure("start, p50", median(ours), median(peer), "docker run + exec", count)]


def gradings(client: Client, rows: list[dict]) -> list[Figure]:
    """From /postprocess sent to the verdict, against the same tests by `docker run`."""
    figures = []
    for row in rows:
        folder = ROOT / "examples" / row["repo"].partition("/")[2]
        gold, tests = ((folder / f"{name}.patch").read_text() for name in ("gold", "test"))
        sid = client.start(row["instance_id"])
        client.bash(sid, f"git apply - <<'END_OF_PATCH'\n{gold}END_OF_PATCH")
        begin = time.perf_counter()
        client.post("/postprocess", sid=sid)
        reply = client.post("/compute_reward", sid=sid)
        ours = (time.perf_counter() - begin) * 1000
        if reply["verdict"] != "resolved":
            raise SystemExit(f"{row['instance_id']}: gold is {reply['verdict']}: {reply.get('cause')}")
        image = row.get("image") or row["sandbox"]["images"][0]
        command = row.get("test_cmd") or row["grader"]["command"]
        apply = "".join(f"git apply - <<'END_OF_PATCH'\n{patch}END_OF_PATCH\n" for patch in (gold, tests))
        peer = timed_ms(partial(docker, "run", "--rm", "--network", "none", image, "bash", "-c", f"{apply}{command}"))
        figures.append(Figure(f"postprocess to verdict, {folder.name}", ours, peer, "docker run of the tests", 1))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--actions", type=int, default=1000)
    parser.add_argument("--starts", type=int, default=10)
    options = parser.parse_args()

    instances = ROOT / "examples" / "instances.jsonl"
    rows = [row for line in instances.read_text().splitlines() if "code" not in (row := json.loads(line))]
    sample = next(row for row in rows if row["repo"] == f"samples/{SAMPLE}")
    with local_server(instances) as server:
        client = Client(server.url)
        figures = [
            *actions(client, sample, options.actions),
            *starts(client, sample, options.starts),
            *gradings(client, rows),
        ]
    print(f"{'':<36}{'ours':>14}{'peer':>14}{'ratio':>9}{'n':>7}  peer is")
    for one in figures:
        print(one.line())
    target = ROOT / "bench" / "results" / "latest.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps([one.entry() for one in figures], indent=2) + "\n")


if __name__ == "__main__":
    main()
