"""Checks of files in boxes by the real E2B SDK; `checks.py` runs them."""

import hashlib
import inspect
import io
import os
import urllib.error
import urllib.request

from begun_box import MIB, WHOLE, begin, raises
from e2b import NotFoundException, SandboxException
from e2b.exceptions import AuthenticationException, InvalidArgumentException


def check_files(box):
    for data in ("text ü", b"bytes \0\xff", io.BytesIO(b"stream" * 1000)):
        wanted = data.getvalue() if isinstance(data, io.BytesIO) else data.encode() if isinstance(data, str) else data
        info = box.files.write("some dir/a b.bin", data)
        assert info.path.endswith("/some dir/a b.bin"), info
        assert bytes(box.files.read("some dir/a b.bin", format="bytes")) == wanted
    assert box.files.read("some dir/a b.bin") == "stream" * 1000
    assert b"".join(box.files.read("some dir/a b.bin", format="stream")) == b"stream" * 1000
    box.files.write("empty", "")
    assert box.files.read("empty") == ""


def check_octet_stream(box):
    if "use_octet_stream" not in inspect.signature(box.files.write).parameters:
        return
    data = os.urandom(3 * MIB)
    for gzip in (False, True):
        box.files.write("/tmp/octets", io.BytesIO(data), use_octet_stream=True, gzip=gzip)
        assert bytes(box.files.read("/tmp/octets", format="bytes", gzip=gzip)) == data


def check_many_files(box):
    entries = [{"path": f"/tmp/many/{n % 7}/{n}", "data": f"file {n}"} for n in range(50)]
    assert len(box.files.write_files(entries)) == 50
    assert [box.files.read(entry["path"]) for entry in entries] == [entry["data"] for entry in entries]


def check_owners_and_modes(box):
    box.files.write("/opt/made/by/agent.sh", "x", user="agent")
    seen = box.commands.run("stat -c '%U:%G %a' /opt/made /opt/made/by /opt/made/by/agent.sh").stdout
    assert seen == "agent:agent 755\nagent:agent 755\nagent:agent 644\n", seen
    box.commands.run("chmod 755 /opt/made/by/agent.sh; chown root /opt/made/by/agent.sh", user="root")
    inode = box.commands.run("stat -c %i /opt/made/by/agent.sh").stdout
    box.files.write("/opt/made/by/agent.sh", "y", user="agent")
    seen = box.commands.run("stat -c '%U %a' /opt/made/by/agent.sh; stat -c %i /opt/made/by/agent.sh").stdout
    assert seen == "agent 755\n" + inode, seen
    assert box.files.write("~/in-home", "x", user="agent").path == "/home/agent/in-home"
    assert box.files.write("in-home", "x", user="agent").path == "/home/agent/in-home"


def check_errors_of_files(box):
    raises(NotFoundException, lambda: box.files.read("/no/such/file"))
    raises(InvalidArgumentException, lambda: box.files.read("/tmp"))
    raises(InvalidArgumentException, lambda: box.files.write("/tmp", "x"))
    raises(AuthenticationException, lambda: box.files.read("/etc/passwd", user="nobody-here"))
    raises(AuthenticationException, lambda: box.files.write("/tmp/x", "x", user="nobody-here"))
    raises(NotFoundException, lambda: box.files.list("/no/such"))
    raises(NotFoundException, lambda: box.files.rename("/no/such", "/tmp/y"))
    raises(SandboxException, lambda: box.files.list("/etc/passwd"))


def check_folders(box):
    assert box.files.make_dir("tree/a/b")
    assert not box.files.make_dir("tree/a/b")
    box.files.write("tree/f", "12345")
    box.commands.run("ln -s f tree/link; ln -s nowhere tree/dangling")
    names = [entry.name for entry in box.files.list("tree")]
    # releases before 2.38 leave out what is neither file nor folder
    assert names in (["a", "dangling", "f", "link"], ["a", "f", "link"]), names
    deep = [entry.path.rpartition("tree/")[2] for entry in box.files.list("tree", depth=3)]
    assert [name for name in deep if name != "dangling"] == ["a", "a/b", "f", "link"], deep
    info = box.files.get_info("tree/f")
    assert (info.size, info.mode, info.permissions) == (5, 0o644, "-rw-r--r--"), info
    assert box.files.get_info("tree/link").symlink_target.endswith("/tree/f")
    assert box.files.exists("tree/f") and not box.files.exists("tree/g")
    moved = box.files.rename("tree/f", "tree/new/g")
    assert moved.path.endswith("/tree/new/g"), moved
    box.files.remove("tree")
    box.files.remove("tree")
    assert not box.files.exists("tree")


def check_metadata(box):
    if "metadata" not in inspect.signature(box.files.write).parameters:
        return
    assert box.files.write("/opt/marked", "1", metadata={"author": "me"}).metadata == {"author": "me"}
    assert box.files.get_info("/opt/marked").metadata == {"author": "me"}
    assert [e.metadata for e in box.files.list("/opt") if e.name == "marked"] == [{"author": "me"}]
    assert box.files.write("/opt/marked", "2").metadata is None


def check_watch(box):
    box.files.make_dir("watched")
    handle = box.files.watch_dir("watched")
    box.files.write("watched/new", "x")
    told = [(event.name, event.type.value) for event in handle.get_new_events()]
    assert ("new", "create") in told and ("new", "write") in told, told
    assert handle.get_new_events() == []
    box.files.remove("watched/new")
    assert [(event.name, event.type.value) for event in handle.get_new_events()] == [("new", "remove")]
    # gone before anybody looks
    box.commands.run("cd watched; echo 1 >one; mv one two; rm two; mkdir inner; rmdir inner")
    told = [(event.name, event.type.value) for event in handle.get_new_events()]
    first = [("one", "create"), ("one", "write"), ("one", "rename"), ("two", "create"), ("two", "remove")]
    assert told == [*first, ("inner", "create"), ("inner", "remove")], told
    handle.stop()
    deep = box.files.watch_dir("watched", recursive=True)
    box.files.make_dir("watched/later")
    assert [(event.name, event.type.value) for event in deep.get_new_events()] == [("later", "create")]
    box.commands.run("touch watched/later/x; rm watched/later/x")
    assert ("later/x", "remove") in [(event.name, event.type.value) for event in deep.get_new_events()]
    box.commands.run("mv watched/later watched/moved")
    assert [(event.name, event.type.value) for event in deep.get_new_events()] == [
        ("later", "rename"),
        ("moved", "create"),
    ]
    box.commands.run("touch watched/moved/y; rm watched/moved/y")
    assert {event.name for event in deep.get_new_events()} == {"moved/y"}
    deep.stop()
    raises(NotFoundException, lambda: box.files.watch_dir("not-there"))


def check_signed_urls(box):
    box.files.write("signed.txt", "signed")
    with urllib.request.urlopen(box.download_url("signed.txt", use_signature_expiration=60)) as answer:
        assert answer.read() == b"signed"
    stale = box.download_url("signed.txt", use_signature_expiration=-60)
    assert raises(urllib.error.HTTPError, lambda: urllib.request.urlopen(stale)).code == 401
    other = box.download_url("signed.txt").replace("signed.txt", "other.txt")
    assert raises(urllib.error.HTTPError, lambda: urllib.request.urlopen(other)).code == 401


def check_a_full_disk(_):
    box = begin()  # a separate box, because one whose disk stays full is ended
    try:
        chunks = (b"\0" * MIB for _ in range(140))
        error = raises(SandboxException, lambda: box.files.write("/opt/too-large", _Reader(chunks)))
        assert "Space" in type(error).__name__, repr(error)
    finally:
        box.kill()


class _Reader(io.RawIOBase):
    """A file as long as `chunks`."""

    def __init__(self, chunks):
        self._chunks = chunks

    def readable(self):
        return True

    def read(self, size=-1):
        if size < 0:
            return b"".join(self._chunks)
        return next(self._chunks, b"")


def check_a_large_upload(box):
    data = os.urandom(MIB) * (40 if WHOLE else 4)
    digest = hashlib.sha256(data).hexdigest()
    box.files.write("/tmp/large", io.BytesIO(data), request_timeout=120)
    assert box.commands.run("sha256sum < /tmp/large").stdout.split()[0] == digest
    assert hashlib.sha256(bytes(box.files.read("/tmp/large", format="bytes"))).hexdigest() == digest
    box.files.remove("/tmp/large")
