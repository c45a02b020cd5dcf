"""A network namespace that acts as another host, connected to this one by a pair of virtual interfaces."""

import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from chaos.processes import ChaosFailed, run


@dataclass(frozen=True, slots=True)
class Namespace:
    """Prefix a command with `enter` to run it on that host."""

    name: str
    host: str
    """This host's address, seen from there."""
    address: str
    """That host's address."""

    @property
    def enter(self) -> tuple[str, ...]:
        """Enters the network namespace only: `ip netns exec` would also hide /sys/fs/cgroup, which an engine needs."""
        return ("nsenter", f"--net=/run/netns/{self.name}", "--")

    def cut(self, port: int) -> None:
        """Silently drop every packet to and from our `port`."""
        for rule in self._rules(port):
            run(*self.enter, "iptables", "-w", "-I", *rule)

    def heal(self, port: int) -> None:
        """Undo `cut`, also if it was done only in part."""
        for rule in self._rules(port):
            run(*self.enter, "iptables", "-w", "-D", *rule, check=False)

    def reaches(self, port: int, *, timeout_s: float = 1.0) -> bool:
        """Whether a connection from there to our `port` opens."""
        probe = f"import socket; socket.create_connection(('{self.host}', {port}), {timeout_s})"
        try:
            run(*self.enter, "python3", "-c", probe, timeout_s=timeout_s + 10)
        except ChaosFailed:
            return False
        return True

    @staticmethod
    def _rules(port: int) -> tuple[tuple[str, ...], ...]:
        out = ("OUTPUT", "-p", "tcp", "--dport", str(port), "-j", "DROP")
        back = ("INPUT", "-p", "tcp", "--sport", str(port), "-j", "DROP")
        return out, back


@contextmanager
def namespace(run_id: str) -> Iterator[Namespace]:
    """Create a namespace; at the end remove it with its interfaces and addresses."""
    taken = run("ip", "-4", "-o", "addr")
    while True:  # 198.18.0.0/15 is reserved for network tests by RFC 2544; its first half is tests/test_swarm.py's
        net = f"198.19.{secrets.randbelow(256)}"
        if net not in taken:
            break
    # an interface name may have 15 characters
    near, far = f"ch{run_id}n", f"ch{run_id}f"
    made = Namespace(f"chaos-{run_id}", f"{net}.1", f"{net}.2")
    try:
        run("ip", "netns", "add", made.name)
        run("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", made.name)
        run("ip", "addr", "add", f"{made.host}/30", "dev", near)
        run("ip", "link", "set", near, "up")
        for words in (("addr", "add", f"{made.address}/30", "dev", far), ("link", "set", far, "up")):
            run(*made.enter, "ip", *words)
        run(*made.enter, "ip", "link", "set", "lo", "up")
        yield made
    finally:
        run("ip", "link", "del", near, check=False)
        run("ip", "netns", "del", made.name, check=False)


def free_port(address: str = "127.0.0.1") -> int:
    """A free port that the kernel gives to no outgoing connection, so that it is free again after each kill."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with suppress(OSError), socket.create_server((address, port)):
            return port
