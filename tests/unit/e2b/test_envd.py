"""envd's calls without a box: watching by polling, the login shell's PATH, ends of commands."""

import json

import pytest

from sandbox_server.boxes.command import with_path
from sandbox_server.protocols.e2b import envd_processes
from sandbox_server.protocols.e2b.connect import ConnectError, Frames
from sandbox_server.protocols.e2b.envd_filesystem import entry, permissions
from sandbox_server.protocols.e2b.envd_watch import changes
from sandbox_server.protocols.e2b.watches import OF_BOX, Watch, Watches
from sandbox_server.sandbox.base import ProcessEnd, Stream
from sandbox_server.sandbox.filesystem import FileInfo, FileKind


def info(inode: int = 1, at: int = 1, **fields: object) -> FileInfo:
    """A file; `at` is the time of its last change."""
    own: dict[str, object] = {
        "name": "f",
        "path": "/d/f",
        "kind": FileKind.FILE,
        "size": 3,
        "mode": 0o644,
        "permissions": "-rw-r--r--",
        "owner": "user",
        "group": "user",
        "mtime_ns": 1_700_000_000_000_000_001,
        "changed": f"{inode}:{at}",
    }
    return FileInfo(**own | fields)  # type: ignore[arg-type]  # the fields are those of FileInfo


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({}, {"a": info()}, [("a", "CREATE"), ("a", "CHMOD"), ("a", "WRITE")]),
        ({}, {"d": info(kind=FileKind.DIR)}, [("d", "CREATE")]),
        ({"a": info()}, {}, [("a", "REMOVE")]),
        ({"a": info(7, 1)}, {"b": info(7, 2)}, [("a", "RENAME"), ("b", "CREATE")]),
        ({"a": info(1, 1)}, {"a": info(1, 2, mtime_ns=5)}, [("a", "WRITE")]),
        ({"a": info(1, 1)}, {"a": info(1, 2, mode=0o600)}, [("a", "CHMOD")]),
        ({"d": info(1, 1, kind=FileKind.DIR)}, {"d": info(1, 2, kind=FileKind.DIR, mtime_ns=5)}, []),
        ({"a": info()}, {"a": info()}, []),
    ],
)
def test_changes(before: dict[str, FileInfo], after: dict[str, FileInfo], told: list[tuple[str, str]]) -> None:
    """A watcher gets exactly the changes that happened."""
    assert list(changes(before, after)) == told


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        ("-rw-r--r--", "-rw-r--r--"),
        ("drwxr-xr-x", "drwxr-xr-x"),
        ("drwxrwxrwt", "dtrwxrwxrwx"),
        ("lrwxrwxrwx", "Lrwxrwxrwx"),
        ("crw-rw-rw-", "Dcrw-rw-rw-"),
        ("brw-rw----", "Drw-rw----"),
        ("prw-r--r--", "prw-r--r--"),
        ("srwxr-xr-x", "Srwxr-xr-x"),
        ("-rwsr-Sr-T", "ugtrwxr--r--"),
        ("?rw", "?rw"),
    ],
)
def test_permissions_are_written_as_by_envd(listed: str, told: str) -> None:
    """A program that looks for a link or a sticky folder by E2B's letters does not find it."""
    assert permissions(listed) == told


def watch(sid: str, entries: int) -> Watch:
    return Watch(sid, "/d", 1, False, dict.fromkeys(map(str, range(entries)), info()))


def test_watches_hold_so_much() -> None:
    """A thousand watches of one large folder took 35 GB of the server; or one key's drop another's."""
    watches, others, streamed = Watches(), watch("2", 10), watch("1", 20_000)
    watches.poll("o", others)
    watches.stream(streamed)
    for number in range(5):
        watches.poll(f"w{number}", watch("1", 12_000))
    assert [number for number in range(5) if watches.find("1", f"w{number}")] == [3, 4]
    with pytest.raises(ConnectError, match="50000 entries"):
        watches.poll("w5", watch("1", 40_000))
    assert watches.find("1", "w5") is None
    watches.drop(streamed)
    watches.poll("w6", watch("1", 40_000))
    for number in range(OF_BOX + 5):
        watches.poll(f"s{number}", watch("1", 0))
    assert watches.find("1", "s4") is None and watches.find("1", "s5") is not None
    assert watches.find("2", "o") is others and watches.find("1", "o") is None


def test_entry() -> None:
    """The SDK reads size as a string of digits and the time to the nanosecond."""
    shown = entry(info(target="/d/g", attributes={"k": "v"}))
    assert shown["size"] == "3"
    assert shown["modifiedTime"] == "2023-11-14T22:13:20.000000001Z"
    assert (shown["symlinkTarget"], shown["metadata"]) == ("/d/g", {"k": "v"})


@pytest.mark.parametrize(
    ("cmd", "args", "wanted"),
    [
        ("/bin/bash", ["-l", "-c", "ls"], ["-l", "-c", "PATH='/o'\\''x/bin:/bin'${PATH:+:$PATH}; ls"]),
        ("/bin/bash", ["-i", "-l"], ["-i", "-l"]),
        ("/bin/bash", ["-c", "ls"], ["-c", "ls"]),
        ("/usr/bin/python3", ["-l", "-c", "x"], ["-l", "-c", "x"]),
    ],
)
def test_path_of_a_login_shell(cmd: str, args: list[str], wanted: list[str]) -> None:
    """Programs in the image's venv are found, and no other command is changed."""
    assert with_path(cmd, args, "/o'x/bin:/bin") == wanted
    assert with_path(cmd, args, "") == args


@pytest.mark.parametrize(
    ("end", "timeout_exit", "shown"),
    [
        (ProcessEnd(0), False, {"exitCode": 0, "exited": True, "status": "exit status 0"}),
        (ProcessEnd(3), False, {"exitCode": 3, "exited": True, "status": "exit status 3", "error": "exit status 3"}),
        (
            ProcessEnd(-1, signal=9),
            False,
            {"exitCode": -1, "exited": False, "status": "signal: killed", "error": "signal: killed"},
        ),
        (
            ProcessEnd(-1, signal=9, timed_out=True),
            True,
            {"exitCode": 124, "exited": True, "status": "exit status 124", "error": "timed out"},
        ),
    ],
)
def test_ends(end: ProcessEnd, timeout_exit: bool, shown: dict[str, object]) -> None:
    """Exit codes are exact, because clients decide by them alone."""
    assert envd_processes._ended(end, timeout_exit) == shown


def test_output() -> None:
    """Bytes that are not text arrive unchanged."""
    ((_, content),) = Frames().feed(envd_processes._data(Stream.STDERR, b"\xff\0"))
    assert json.loads(content) == {"event": {"data": {"stderr": "/wA="}}}
