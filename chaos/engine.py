"""Docker engines: the machine's, which is never harmed, and one of our own, which is."""

import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from chaos.processes import ChaosFailed, Process, kill_all, processes_of, run, until

_START_S = 60.0
_CONTAINERD = """version = 2
root = "{folder}/containerd/root"
state = "{folder}/containerd/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "{folder}/containerd.sock"
"""


@dataclass(frozen=True, slots=True)
class Listed:
    """A container, as its labels describe it."""

    container: str
    role: str
    sid: str
    running: bool


class Engine:
    """Any engine, by its socket."""

    def __init__(self, url: str | None) -> None:
        """`url`: None is the machine's engine, by DOCKER_HOST or the local socket."""
        self.url = url

    def docker(self, *words: str, check: bool = True, timeout_s: float = 120.0) -> str:
        """Run a docker command and return its output."""
        return run(*self.command(*words), check=check, timeout_s=timeout_s)

    def command(self, *words: str) -> list[str]:
        """The docker command line for this engine."""
        return ["docker", *(("-H", self.url) if self.url else ()), *words]

    def answers(self) -> bool:
        """Whether the daemon answers within 5 s."""
        with suppress(ChaosFailed):
            return bool(self.docker("version", "--format", "{{.Server.Version}}", timeout_s=5))
        return False

    def containers(self, node: str, *filters: str) -> list[Listed]:
        """All containers of that node, in any state; `filters` such as `role=grade`."""
        labels = (f"node={node}", *filters)
        words = [word for label in labels for word in ("--filter", f"label=sandbox.{label}")]
        form = '{"id":"{{.ID}}","role":"{{.Label "sandbox.role"}}","sid":"{{.Label "sandbox.sid"}}","is":"{{.State}}"}'
        lines = self.docker("ps", "-a", "--no-trunc", "--format", form, *words).splitlines()
        return [
            Listed(line["id"], line["role"], line["sid"], line["is"] == "running") for line in map(json.loads, lines)
        ]


class OwnEngine(Engine):
    """containerd and dockerd with all paths below one folder, in their own network namespace."""

    def __init__(self, folder: Path, logs: Path, enter: Sequence[str], run_id: str, *more: str) -> None:
        """`enter`: prefix that runs a command in that network namespace. `more`: further flags of dockerd."""
        self.folder = folder
        self.cgroup = f"chaos-{run_id}"
        """Parent of its containers' cgroups; finds them when the daemon is dead."""
        self.data = folder / "docker"
        super().__init__(f"unix://{folder}/docker.sock")
        config = folder / "containerd.toml"
        self.containerd = Process("containerd", [*enter, "containerd", "--config", config], logs / "containerd.log")
        # --bridge=none removes docker0 from its network namespace, so it must never run in the host's
        flags = {
            "data-root": self.data,
            "exec-root": folder / "exec",
            "pidfile": folder / "docker.pid",
            "host": self.url,
            "containerd": f"{folder}/containerd.sock",
            "cgroup-parent": f"/{self.cgroup}",
            "bridge": "none",
            "iptables": "false",
        }
        words = [f"--{name}={value}" for name, value in flags.items()]
        self.dockerd = Process("dockerd", [*enter, "dockerd", *words, *more], logs / "dockerd.log")
        if not enter:
            raise ChaosFailed("an engine of ours needs a network namespace of its own")

    def start(self) -> None:
        """Start the daemons that do not run, and wait until they answer."""
        if not self.containerd.runs:
            (self.folder / "containerd.toml").write_text(_CONTAINERD.format(folder=self.folder))
            self.containerd.start()
            socket = self.folder / "containerd.sock"
            until(socket.exists, _START_S, "containerd listens", part=self.containerd)
        self.dockerd.start()
        until(self.answers, _START_S, "the engine answers", part=self.dockerd)

    def copy_images(self, source: Engine, images: Sequence[str]) -> None:
        """`docker save | docker load`."""
        save, load = " ".join(source.command("save", *images)), " ".join(self.command("load", "-q"))
        run("sh", "-c", f"{save} | {load}", timeout_s=300)

    def kill_daemon(self) -> None:
        """kill -9 of dockerd only; its containers live until it is back."""
        self.dockerd.end()

    def kill_host(self) -> None:
        """Kill everything at once, as in a power failure of the host."""
        self.dockerd.end()
        self.containerd.end()
        kill_all(self.processes)

    def processes(self) -> list[int]:
        """Process ids of the engine and in its containers."""
        return sorted({*processes_of(f"{self.folder}/"), *processes_of(f"/{self.cgroup}/")})

    def close(self) -> None:
        """End the engine and everything that ran on it."""
        with suppress(ChaosFailed):
            if self.dockerd.runs and (left := self.docker("ps", "-aq").split()):
                self.docker("rm", "-f", *left)
        self.dockerd.end(signal.SIGTERM)
        self.containerd.end(signal.SIGTERM)
        kill_all(self.processes)


@contextmanager
def own_engine(folder: Path, logs: Path, enter: Sequence[str], run_id: str, *more: str) -> Iterator[OwnEngine]:
    """Run an engine below `folder`, which should be a file system of its own. The rest as for `OwnEngine`."""
    engine = OwnEngine(folder, logs, enter, run_id, *more)
    try:
        engine.start()
        yield engine
    finally:
        engine.close()
        groups = Path("/sys/fs/cgroup")
        for path in (groups / engine.cgroup, *groups.glob(f"*/{engine.cgroup}")):  # version 2; of each controller
            with suppress(OSError):  # the last container has removed it already
                path.rmdir()
