"""Reads from the kernel how much egress rules have refused, for containers of this host.

A netlink socket opened in a container's network namespace keeps the namespace and its counter alive. Reading therefore
takes 20 µs and no process, and a policy that ends all processes of its container does not reset the counter. Nothing in
a container can change the counter: that needs NET_ADMIN in the user namespace that owns the network namespace.
"""

import asyncio
import ctypes
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from sandbox_server import telemetry
from sandbox_server.sandbox.egress import COUNTER, TABLE

log = telemetry.logger(__name__)

_CLONE_NEWNET = 0x40000000
_NETLINK_NETFILTER = 12
_INET = 1  # NFPROTO_INET
_NEW_OBJECT, _GET_OBJECT = 10 << 8 | 18, 10 << 8 | 19  # of NFNL_SUBSYS_NFTABLES
_REQUEST = 1
_TABLE, _NAME, _KIND, _DATA = 1, 2, 3, 4  # NFTA_OBJ_*
_COUNTER = 1  # NFT_OBJECT_COUNTER
_PACKETS = 2  # NFTA_COUNTER_PACKETS
_HEADERS = 20  # bytes: struct nlmsghdr and nfgenmsg
_ANSWER = 4096  # bytes; it has some 110


class Refusals:
    """The counts of all containers. A server that cannot enter network namespaces uses `list_counter` instead.

    It cannot if it runs on another host than its engine, in a container, or without CAP_SYS_ADMIN.
    """

    def __init__(self, list_counter: Callable[[str], Awaitable[int | None]]) -> None:
        """`list_counter` runs a process in a container's network namespace and returns the counter's packets.

        It returns None if there is no counter or the container does not run, and raises nothing.
        """
        self._list_counter = list_counter
        self._open: dict[str, socket.socket] = {}
        self._before: dict[str, int] = {}
        """Container -> number refused under its earlier rules and in its earlier runs."""

    async def follow(self, container_id: str, pid: int, *, before: int = 0) -> None:
        """Count in the network namespace of process `pid` from now on, beginning with `before`.

        `pid` 0: the container's processes are not visible from here.
        """
        self.forget(container_id)
        wire = await self._enter(container_id, pid) if pid else None
        if wire is not None and _packets(wire) is None:  # rules without a counter, or another process has that number
            wire.close()
            wire = None
        if wire is not None:
            self._open[container_id] = wire
        self._before[container_id] = before

    async def count(self, container_id: str) -> int | None:
        """Packets and name queries that the container's rules have refused since its creation; None: nobody counts."""
        before = self._before.get(container_id)
        if before is None:
            return None
        wire = self._open.get(container_id)
        now = _packets(wire) if wire else await self._list_counter(container_id)
        return before + now if now is not None else before or None

    async def _enter(self, container_id: str, pid: int) -> socket.socket | None:
        thread = ThreadPoolExecutor(1, "netns")  # its thread enters the namespace for good, and then ends
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, _in_namespace, pid)
        except OSError as error:
            log.debug("a network namespace cannot be entered", container_id=container_id[:12], error=str(error))
            return None
        finally:
            thread.shutdown(wait=False)

    def forget(self, container_id: str) -> None:
        """Stop counting, and let the namespace go."""
        self._before.pop(container_id, None)
        if wire := self._open.pop(container_id, None):
            wire.close()

    def close(self) -> None:
        """Forget all."""
        for container_id in list(self._open):
            self.forget(container_id)


def _in_namespace(pid: int) -> socket.socket:
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(namespace, _CLONE_NEWNET):  # affects this thread alone; os.setns is new in Python 3.12
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "setns")
        wire = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    finally:
        os.close(namespace)
    wire.setblocking(False)  # the kernel has answered when `send` returns
    return wire


def _packets(wire: socket.socket) -> int | None:
    """The counter's packets; None: there is none."""
    asked = struct.pack("!BBH", _INET, 0, 0) + _attribute(_TABLE, TABLE.encode() + b"\0")
    asked += _attribute(_NAME, COUNTER.encode() + b"\0") + _attribute(_KIND, struct.pack("!I", _COUNTER))
    with suppress(OSError):
        wire.send(struct.pack("=IHHII", 16 + len(asked), _GET_OBJECT, _REQUEST, 0, 0) + asked)
        answer = wire.recv(_ANSWER)
        if struct.unpack_from("=H", answer, 4)[0] == _NEW_OBJECT:
            packets = _attributes(_attributes(answer[_HEADERS:])[_DATA])[_PACKETS]
            return int.from_bytes(packets, "big")
    return None


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _attributes(text: bytes) -> dict[int, bytes]:
    found = {}
    while len(text) >= 4:
        size, kind = struct.unpack_from("=HH", text)
        found[kind & 0x3FFF] = text[4:size]  # without NLA_F_NESTED
        text = text[(size + 3) // 4 * 4 :] if size >= 4 else b""
    return found
