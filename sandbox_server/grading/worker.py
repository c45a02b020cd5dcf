"""The worker process: imports the part of swebench that judges, so that the server need not, and forks judges.

Each request arrives as one end of a socket pair, passed over the socket whose number is the first argument. A judge is
forked for it, which shares the imported library, handles that one request and ends. Whatever a log does to its judge
(regular expressions that never return, memory) is bounded by the kernel and affects no other log. A judge that has
used more CPU than an innocent log needs is lowered to a priority below the others.

Protocol on the pair: request = 8 bytes of length and JSON `{"op", "row", ...}`; reply = one line, `{"ok": ...}`,
`{"error": text}` (the row's fault) or `{"unjudgeable": text}` (the log's fault). For a judge that died without a reply
this process writes `{"signal", "cpu_s"}`. A judge dies when its caller closes the pair; this process when its parent
ends. It is run by path in isolated mode, so it imports nothing of ours.
"""

import contextlib
import fcntl
import functools
import gc
import importlib
import importlib.metadata
import json
import math
import os
import resource
import select
import selectors
import signal
import socket
import sys
import time
import types
from dataclasses import dataclass
from typing import Any, NoReturn

Fields = dict[str, Any]

_NICE_AFTER_S = 0.05  # most logs take 0.02 s
_NICE = 15
_IDLE_AFTER_S = 1.5  # an honest log of 8 MB with 100,000 results took 0.8 s
_LOOK_S = 0.02
_UNUSED = ("datasets", "swebench.harness.modal_eval")
"""Modules that swebench 5 imports, but not to judge: 1.5 of 1.7 s of CPU, and 130 of 165 MB."""


@dataclass(frozen=True, slots=True)
class _Bounds:
    cpu_s: float
    wall_s: float
    memory_bytes: int


@dataclass(slots=True)
class _Judge:
    pidfd: int
    pair: socket.socket
    steps: int = 0
    """How often its priority was lowered."""


class UnjudgeableLog(Exception):
    """The library fails on this log."""


@functools.cache
def _library(module: str) -> Any:
    return importlib.import_module(f"swebench.harness.{module}")


class _Unused(types.ModuleType):
    """Stands for a module of `_UNUSED`: its names can be imported, but not called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*_: object, **__: object) -> NoReturn:
            raise RuntimeError(f"{self.__name__}.{name} is not loaded in the process that judges")

        return refuse


def _import_library() -> None:
    """Import what judging needs, without `_UNUSED`; if this fails with a release of swebench, import all of it."""
    modules = ("grading", "constants", "log_parsers", "utils")
    before = set(sys.modules)
    sys.modules.update({name: _Unused(name) for name in _UNUSED})
    try:
        for module in modules:
            _library(module)
    except Exception:  # noqa: BLE001 - whatever a release does with a stand-in
        _library.cache_clear()
        for name in set(sys.modules) - before:
            del sys.modules[name]
        for module in modules:
            _library(module)


def _spec(row: Fields) -> Any:
    parsers = _library("log_parsers").PARSER_REGISTRY
    if row["log_parser"] not in parsers:
        raise LookupError(f"swebench knows no log parser {row['log_parser']!r}")
    return _library("utils").make_test_spec(row)


def script(request: Fields) -> Fields:
    """The row's script, which records the test command's exit code as the library does."""
    return {"script": _spec(request["row"]).eval_script}


def report(request: Fields) -> Fields:
    """The library's report on a log, and facts that explain why there may be no results."""
    row, log = request["row"], request["log"]
    grading, constants = _library("grading"), _library("constants")
    spec = _spec(row)
    try:
        # The library only checks that the patch is not None; empty patches are answered before this.
        prediction = {"instance_id": row["instance_id"], "model_patch": "applied"}
        # In memory: a file would outlive a judge that is killed.
        with open(os.memfd_create("log"), "w", encoding="utf-8", errors="replace", newline="") as file:
            file.write(log)
            file.flush()
            path = f"/proc/self/fd/{file.fileno()}"
            found = grading.get_eval_report(spec, prediction, path, include_tests_status=True)
        exit_code = grading.parse_test_exit_code(log)
    except Exception as error:
        raise UnjudgeableLog(f"{type(error).__name__}: {error}") from error
    return {
        "report": found[row["instance_id"]],
        "started": constants.START_TEST_OUTPUT in log,
        "ended": constants.END_TEST_OUTPUT in log,
        "exit_code": exit_code,
        "version": importlib.metadata.version("swebench"),
    }


_OPS = {"script": script, "report": report}


def _answer(pair: socket.socket) -> Fields:
    try:
        with pair.makefile("rb") as file:
            request = json.loads(file.read(int.from_bytes(file.read(8), "big")))
        _die_with_asker(pair)
        return {"ok": _OPS[request["op"]](request)}
    except UnjudgeableLog as error:
        if isinstance(error.__cause__, MemoryError):
            return {"unjudgeable": "memory"}
        return {"unjudgeable": str(error)[:1000]}
    except MemoryError:
        return {"unjudgeable": "memory"}
    except Exception as error:  # noqa: BLE001 - any fault of the library is the reply
        return {"error": f"{type(error).__name__}: {error}"[:1000]}
    finally:
        _outlive_asker(pair)


def _die_with_asker(pair: socket.socket) -> None:
    """End this process when the caller closes the pair: by SIGIO, because a signal works in any state."""
    fcntl.fcntl(pair, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pair, fcntl.F_SETFL, fcntl.fcntl(pair, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([pair], [], [], 0)[0]:
        os._exit(0)  # closed before, while the request was read: no signal tells of that


def _outlive_asker(pair: socket.socket) -> None:
    """Undo `_die_with_asker`."""
    fcntl.fcntl(pair, fcntl.F_SETFL, fcntl.fcntl(pair, fcntl.F_GETFL) & ~os.O_ASYNC)


def _judge(pair: socket.socket, bounds: _Bounds) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    whole_s = math.ceil(bounds.cpu_s)
    resource.setrlimit(resource.RLIMIT_CPU, (whole_s, whole_s + 1))
    # The default action of both signals ends the process even inside a regular expression that never returns.
    signal.setitimer(signal.ITIMER_REAL, bounds.wall_s)
    with open("/proc/self/statm", encoding="ascii") as file:
        inherited = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (inherited + bounds.memory_bytes,) * 2)
    reply = json.dumps(_answer(pair)).encode()
    with contextlib.suppress(OSError):
        pair.sendall(reply + b"\n")


class _Judges:
    """Forks a judge for each pair that arrives, and reaps them."""

    def __init__(self, control: socket.socket, bounds: _Bounds) -> None:
        self._control = control
        self._bounds = bounds
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._living: dict[int, _Judge] = {}

    def serve(self) -> None:
        """Serve until the other end of the control socket is closed."""
        while True:
            watched = any(judge.steps < 2 for judge in self._living.values())
            for key, _ in self._selector.select(_LOOK_S if watched else None):
                if key.data is not None:
                    self._bury(key.data)
                elif not self._take():
                    return
            self._lower()

    def _take(self) -> bool:
        said, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        for descriptor in descriptors:
            self._fork(socket.socket(fileno=descriptor))
        return bool(said)

    def _fork(self, pair: socket.socket) -> None:
        pid = os.fork()
        if pid == 0:
            try:
                # A copy left open here would keep another judge's caller waiting.
                for judge in self._living.values():
                    judge.pair.close()
                    os.close(judge.pidfd)
                self._control.close()
                _judge(pair, self._bounds)
            finally:
                os._exit(0)
        judge = self._living[pid] = _Judge(os.pidfd_open(pid), pair)
        self._selector.register(judge.pidfd, selectors.EVENT_READ, pid)

    def _bury(self, pid: int) -> None:
        judge = self._living.pop(pid)
        _, status, usage = os.wait4(pid, 0)
        if os.WIFSIGNALED(status):
            said = {"signal": os.WTERMSIG(status), "cpu_s": usage.ru_utime + usage.ru_stime}
            with contextlib.suppress(OSError):  # its caller has gone
                judge.pair.send(json.dumps(said).encode() + b"\n", socket.MSG_DONTWAIT)
        self._selector.unregister(judge.pidfd)
        os.close(judge.pidfd)
        judge.pair.close()

    def _lower(self) -> None:
        for pid, judge in self._living.items():
            if judge.steps == 2:
                continue
            # The judge's CPU clock. The process exists, at least as a zombie, until it is reaped.
            used_s = time.clock_gettime((~pid << 3) | 2)
            with contextlib.suppress(OSError):  # if that is forbidden, the bounds still hold
                if judge.steps == 0 and used_s > _NICE_AFTER_S:
                    judge.steps = 1
                    os.setpriority(os.PRIO_PROCESS, pid, _NICE)
                elif used_s > _IDLE_AFTER_S:
                    judge.steps = 2
                    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def main() -> None:
    """Import the library, report readiness with one byte, and serve."""
    os.dup2(2, 1)  # what the library prints must not go to a stdout that somebody reads
    number, cpu_s, wall_s, memory_bytes = sys.argv[1:]
    control = socket.socket(fileno=int(number))
    _import_library()
    gc.collect()
    gc.freeze()  # otherwise a judge's first garbage collection would copy all shared pages
    control.send(b"r")
    _Judges(control, _Bounds(float(cpu_s), float(wall_s), int(memory_bytes))).serve()


if __name__ == "__main__":
    main()
