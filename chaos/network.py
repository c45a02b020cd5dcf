"""A network namespace that stands for another host, joined to this one by a pair of virtual interfaces."""

import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from chaos.processes import ChaosFailed, run


@dataclass(frozen=True, slots=True)
class Namespace:
    """`enter` + a command runs it on that host."""

    name: str
    host: str
    """Our own address as that host sees it."""
    address: str
    """That host's."""

    @property
    def enter(self) -> tuple[str, ...]:
        """The network alone: `ip netns exec` would also hide /sys/fs/cgroup, which an engine needs."""
        return ("nsenter", f"--net=/run/netns/{self.name}", "--")

    def cut(self, port: int) -> None:
        """Lose, without a word, every packet to and from that port of ours."""
        for rule in self._rules(port):
            run(*self.enter, "iptables", "-w", "-I", *rule)

    def heal(self, port: int) -> None:
        """Undo `cut`, also where it was done in part."""
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
    """A namespace of that name; it, the interfaces and the addresses are gone at the end."""
    taken = run("ip", "-4", "-o", "addr")
    while True:  # 198.18.0.0/15: kept free by RFC 2544 for tests of networks
        net = f"198.{18 + secrets.randbelow(2)}.{secrets.randbelow(256)}"
        if net not in taken:
            break
    # an interface's name may have 15 characters
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
    """Below the ports that the kernel gives to clients: it must be free again after each kill."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with suppress(OSError), socket.create_server((address, port)):
            return port
