"""The whole fleet: one Redis, one SQL database, one or two nodes, a balancer in front of them."""

import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.samples import image_of, rows, write_rows
from chaos.balancer import balancer
from chaos.database import Sql, database
from chaos.engine import Engine, OwnEngine, own_engine
from chaos.leftovers import leftovers
from chaos.mounts import tmpfs
from chaos.network import Namespace, free_port, namespace
from chaos.node import Node
from chaos.processes import ChaosFailed
from chaos.redis_server import RedisServer
from sandbox_server.images.workspaces import TASK_IMAGE_LABEL

SAMPLES = ("ledger", "timespan")
"""One graded by swebench and one by a script; their tests take half a second."""
_COPIES = 4
"""Instances per sample: an instance is placed by a hash of its id, and every node should get some."""
LAST_LOGS = Path(tempfile.gettempdir()) / "chaos-last-logs"
_REDIS_MB = 192
_ENGINE_MB = 3072
_SETTINGS = {
    "SANDBOX_REAPER_PERIOD_S": "2",
    # small, like the machine
    "SANDBOX_POOL_SIZE": "4",
    "SANDBOX_MEMORY_MB": "1024",
    "SANDBOX_COMMAND_TIMEOUT_S": "40",
}


@dataclass(frozen=True, slots=True)
class Fleet:
    """What the faults harm and the trainer uses."""

    url: str
    """The balancer's."""
    nodes: tuple[Node, ...]
    victim: Node
    """The node on our own engine; with two nodes the second."""
    engine: OwnEngine
    """The victim's engine."""
    redis: RedisServer
    sql: Sql
    far: Namespace
    """The network namespace of the victim and its engine."""
    instances: Sequence[tuple[str, str]]
    """(sample, instance id)."""
    folder: Path

    def ready(self) -> bool:
        """Whether every node is ready."""
        return all(node.ready() for node in self.nodes)


def sample_rows() -> dict[str, dict[str, Any]]:
    """Sample -> its row."""
    by_name = {row["repo"].partition("/")[2]: row for row in rows()}
    return {name: by_name[name] for name in SAMPLES}


@contextmanager
def fleet(count: int, settings: Mapping[str, str]) -> Iterator[Fleet]:
    """Run `count` nodes (1 or 2) with the samples in their catalogue; yield once they are ready; leave nothing behind.

    The victim's host is a network namespace with its own engine; the other node is on this host's engine.

    Raises:
        ChaosFailed: a part did not start, or something was left behind.

    """
    run_id = secrets.token_hex(3)
    folder = Path(tempfile.mkdtemp(prefix=f"chaos-{run_id}-"))
    folder.chmod(0o755)  # PostgreSQL runs as another user
    logs = folder / "logs"
    logs.mkdir()
    try:
        with ExitStack() as stack:
            yield _built(stack, run_id, folder, logs, count, settings)
    finally:
        shutil.rmtree(LAST_LOGS, ignore_errors=True)
        shutil.copytree(logs, LAST_LOGS)
        shutil.rmtree(folder, ignore_errors=True)
        left = leftovers(run_id)
        if left:
            print(f"left behind: {', '.join(left)}", file=sys.stderr)
    if left:
        raise ChaosFailed(f"left behind: {', '.join(left)}")


def _built(stack: ExitStack, run_id: str, folder: Path, logs: Path, count: int, settings: Mapping[str, str]) -> Fleet:
    far = stack.enter_context(namespace(run_id))
    small = stack.enter_context(tmpfs(folder / "redis", _REDIS_MB))
    redis = RedisServer(small, logs / "redis.log", far.host, free_port(far.host))
    stack.callback(redis.stop)
    redis.start()
    sql = stack.enter_context(database(folder / "sql", far.host, free_port(far.host)))
    disk = stack.enter_context(tmpfs(folder / "engine", _ENGINE_MB))
    engine = stack.enter_context(own_engine(disk, logs, far.enter, run_id))
    wanted = sample_rows()
    images = [image_of(row) for row in wanted.values()]
    # including images that other servers here have prepared; otherwise the node that has them would get every session
    engine.copy_images(Engine(None), [*images, *_prepared_of(images)])
    shared = {**_SETTINGS, "SANDBOX_REDIS_URL": redis.url, "SANDBOX_DATABASE_URL": sql.url, **settings}
    victim = Node(f"{run_id}-b", engine, folder, logs, (far.address, free_port()), shared, far.enter)
    nodes = [victim]
    if count > 1:
        nodes.insert(0, Node(f"{run_id}-a", Engine(None), folder, logs, (far.host, free_port(far.host)), shared))
    numbered = [
        (name, {**row, "instance_id": f"{row['instance_id']}-{number}"})
        for number in range(_COPIES)
        for name, row in wanted.items()
    ]
    nodes[0].import_rows(write_rows([row for _, row in numbered], folder))
    for node in nodes:
        stack.callback(node.close)
        node.start()
    url = stack.enter_context(balancer(folder, logs, {node.name: f"{node.at[0]}:{node.at[1]}" for node in nodes}))
    instances = [(name, str(row["instance_id"])) for name, row in numbered]
    return Fleet(url, tuple(nodes), victim, engine, redis, sql, far, instances, folder)


def _prepared_of(images: Sequence[str]) -> list[str]:
    labelled = (f"label={TASK_IMAGE_LABEL}={image}" for image in images)
    listed = (Engine(None).docker("images", "-q", "--filter", label) for label in labelled)
    named = (Engine(None).docker("inspect", "-f", '{{join .RepoTags " "}}', *ids.split()) for ids in listed if ids)
    return [name for names in named for name in names.split()]


def require(*programs: str) -> None:
    """Raise ChaosFailed if programs are not installed, naming them."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise ChaosFailed(
            f"not installed: {', '.join(missing)}; `make chaos` as root installs them from Debian's packages"
        )
