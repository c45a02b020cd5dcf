"""The editor, beyond the golden script: unusual files, failures, limits, undo."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.actions import edits, registry
from sandbox_server.actions.base import Call, Observation
from sandbox_server.actions.edits import EditRefused
from sandbox_server.actions.profiles import PLAIN
from sandbox_server.actions.tools import editor
from sandbox_server.errors import SandboxDiskFull
from sandbox_server.sandbox.base import ExecResult, Output
from tests.golden.play import EDITOR_HEAD, MemoryHistory, context
from tests.unit.actions.fakes import FakeSandbox

F = "/w/f.py"


class Desk:
    """An editor on a fake sandbox with one undo history."""

    def __init__(self, **files: bytes) -> None:
        self.sandbox = FakeSandbox()
        self.sandbox.mkdir("/w")
        self.history = MemoryHistory()
        for name, data in files.items():
            self.sandbox.files[f"/w/{name}.py"] = data

    async def observe(self, command: str, path: str = F, *, profile: str = "openhands-0.17", **more) -> Observation:
        around = context(self.sandbox, history=self.history, profile=profile)
        call = Call("str_replace_editor", {"command": command, "path": path, **more})
        return await registry.tools()["str_replace_editor"].run(call, around)

    async def __call__(self, command: str, path: str = F, **more) -> str:
        return (await self.observe(command, path, **more)).text.removeprefix(EDITOR_HEAD)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\r\nold\r\nb\r\n", b"a\nnew\nb\n"),
        (b"a\rold\rb", b"a\nnew\nb"),
        (b"a\nold", b"a\nnew"),
        (b"\ta\nold\n", b"        a\nnew\n"),
        (b"\xef\xbb\xbfold\n", b"\xef\xbb\xbfnew\n"),
        ("naïve old 🎉\n".encode(), "naïve new 🎉\n".encode()),
        (b"\x00old\x0c\n", b"\x00new\x0c\n"),
    ],
)
async def test_an_edit_writes_what_openhands_aci_would(before, after):
    """Line ends, tabs, a missing last newline or a byte order mark differ from those written by Python's text mode."""
    desk = Desk(f=before)
    assert "has been edited" in await desk("str_replace", old_str="old", new_str="new")
    assert desk.sandbox.files[F] == after
    assert "undone" in await desk("undo_edit")
    assert desk.sandbox.files[F] == before.replace(b"\r\n", b"\n").replace(b"\r", b"\n").expandtabs()


async def test_crlf_is_one_line_end_in_a_view():
    """Every line of a Windows file ends in a stray carriage return, and old_str never matches."""
    view = await Desk(f=b"a\r\nb\rc\n")("view")
    assert view == f"Here's the result of running `cat -n` on {F}:\n     1\ta\n     2\tb\n     3\tc\n     4\t\n"


async def test_a_file_is_written_exactly_as_given():
    """A created file gains a newline or loses its tabs or carriage returns."""
    desk = Desk()
    assert await desk("create", file_text="\ta\r\nb") == f"File created successfully at: {F}"
    assert desk.sandbox.files[F] == b"\ta\r\nb"


async def test_a_file_in_no_folder_is_not_created():
    """Folders are created that the policy did not make (upstream creates none)."""
    desk = Desk(f=b"x")
    missing = "/w/no/such/g.py"
    text = f"ERROR:\nRan into [Errno 2] No such file or directory: '{missing}' while trying to write to {missing}"
    assert await desk("create", missing, file_text="x") == text
    below = f"{F}/g.py"
    text = f"ERROR:\nRan into [Errno 20] Not a directory: '{below}' while trying to write to {below}"
    assert await desk("create", below, file_text="x") == text
    assert set(desk.sandbox.files) == {F}
    assert not desk.history.stacks


@pytest.mark.parametrize(
    ("command", "more"),
    [("view", {}), ("str_replace", {"old_str": "a", "new_str": "b"}), ("insert", {"insert_line": 0, "new_str": "b"})],
)
async def test_what_cannot_be_read_is_told_in_pythons_words(command, more):
    """An unreadable or huge file ends the request with an error, or is read whole into the server."""
    desk = Desk(f=b"x" * (editor.MAX_FILE_BYTES + 1))
    told = await desk(command, **more)
    assert told.startswith("ERROR:\nRan into a text of more than 8388608 bytes (")
    assert told.endswith(f" while trying to read {F}")
    desk.sandbox.errors["read", F] = PermissionError()
    told = await desk(command, **more)
    assert told == f"ERROR:\nRan into [Errno 13] Permission denied: '{F}' while trying to read {F}"
    desk.sandbox.errors["read", F] = OSError(errno.ELOOP, "whatever")
    told = await desk(command, **more)
    assert told == f"ERROR:\nRan into [Errno 40] Too many levels of symbolic links: '{F}' while trying to read {F}"


async def test_arguments_are_checked_before_the_content():
    """Upstream names the missing argument first; ours would name the unreadable file."""
    desk = Desk(f=b"\xff")
    assert await desk("str_replace") == "ERROR:\nParameter `old_str` is required for command: str_replace."
    assert await desk("str_replace", old_str="") == "ERROR:\nParameter `old_str` is required for command: str_replace."
    assert await desk("insert", new_str="x") == "ERROR:\nParameter `insert_line` is required for command: insert."
    assert (
        await desk("insert", insert_line=0, new_str="")
        == "ERROR:\nParameter `new_str` is required for command: insert."
    )
    assert (
        await desk("create", "/w/g.py", file_text="")
        == "ERROR:\nParameter `file_text` is required for command: create."
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(), f"Ran into [Errno 13] Permission denied: '{F}' while trying to write to {F}"),
        (IsADirectoryError(), f"Ran into [Errno 21] Is a directory: '{F}' while trying to write to {F}"),
        (OSError("strange"), f"Ran into [Errno 5] Input/output error: '{F}' while trying to write to {F}"),
    ],
)
async def test_a_failed_write_is_told_and_leaves_nothing_to_undo(error, said):
    """An undo after a failed write brings back a text that was never replaced."""
    desk = Desk(f=b"old")
    desk.sandbox.errors["write", F] = error
    assert await desk("str_replace", old_str="old", new_str="new") == f"ERROR:\n{said}"
    assert await desk("undo_edit") == f"ERROR:\nNo edit history found for {F}."


async def test_a_full_disk_is_our_fault_and_undoes_nothing():
    """A full disk reads like the policy's mistake, or costs an undo step."""
    desk = Desk(f=b"one")
    await desk("str_replace", old_str="one", new_str="two")
    desk.sandbox.errors["write", F] = SandboxDiskFull("full")
    with pytest.raises(SandboxDiskFull):
        await desk("str_replace", old_str="two", new_str="three")
    with pytest.raises(SandboxDiskFull):
        await desk("undo_edit")
    desk.sandbox.errors.clear()
    assert "undone" in await desk("undo_edit")
    assert desk.sandbox.files[F] == b"one"
    assert "No edit history" in await desk("undo_edit")


async def test_a_failed_undo_can_be_tried_again():
    """An undo that could not be written is lost."""
    desk = Desk(f=b"one")
    await desk("str_replace", old_str="one", new_str="two")
    desk.sandbox.errors["write", F] = PermissionError()
    assert "Ran into [Errno 13]" in await desk("undo_edit")
    desk.sandbox.errors.clear()
    assert "undone" in await desk("undo_edit")


async def test_histories_are_by_path_in_one_spelling():
    """An undo misses because the path was written with a double slash, or takes another file's text."""
    desk = Desk(f=b"one", g=b"other")
    await desk("str_replace", "/w//./f.py", old_str="one", new_str="two")
    assert await desk("undo_edit", "/w/g.py") == "ERROR:\nNo edit history found for /w/g.py."
    assert "undone" in await desk("undo_edit", "/w/f.py")


@pytest.mark.parametrize("path", ["/w/a\0b", "/w/" + "x" * 5000, "/w/f.py/below", "/w/\ud800"])
@pytest.mark.parametrize("command", ["view", "create", "str_replace", "insert", "undo_edit"])
async def test_a_path_that_cannot_be_is_refused(command, path):
    """An invalid path reaches the container's protocol and breaks it."""
    desk = Desk(f=b"x")
    told = await desk(command, path, file_text="x", old_str="x", new_str="y", insert_line=0)
    told.encode()
    if command == "create" and "\ud800" in path:
        assert told.startswith("File created")
    else:
        assert told.startswith("ERROR:\n")
        assert set(desk.sandbox.files) == {F}


async def test_create_does_not_take_unreadable_for_absent():
    """A file that exists but cannot be read is overwritten."""
    desk = Desk(f=b"x" * 100)
    desk.sandbox.errors["read", F] = PermissionError()
    assert "[Errno 13] Permission denied" in await desk("create", file_text="y")
    assert "directory" not in await desk("create", "/w", file_text="y")
    assert "File already exists at: /w." in await desk("create", "/w", file_text="y")
    desk.sandbox.files["/w/empty.py"] = b""
    assert "File already exists" in await desk("create", "/w/empty.py", file_text="y")


async def test_a_listing_follows_the_link_it_is_given_and_reports_find():
    """The workspace, a link, is listed as empty; or an error message of find is shown as a listing."""
    desk = Desk(f=b"x")
    assert (await desk("view", "/w")).endswith("in /w, excluding hidden items:\n/w\n/w/f.py\n\n")
    argv, options = desk.sandbox.executed[0]
    assert argv == ["find", "-H", "/w", "-maxdepth", "2", "-not", "-path", r"*/\.*"]
    assert options == {"timeout_s": 6.0, "user": None}
    desk.sandbox.exec_result = ExecResult(1, Output(b"/w\n"), Output(b"find: no\n"), False, 0.1)
    assert await desk("view", "/w") == "ERROR:\nfind: no\n"
    desk.sandbox.exec_result = ExecResult(None, Output(b"/w\n"), Output(b""), True, 6.0)
    assert await desk("view", "/w") == "ERROR:\nRan into a time-out while trying to read /w"
    desk.sandbox.exec_result = ExecResult(0, Output(b"/w\n" * 10_000), Output(b""), False, 0.1)
    assert len(await desk("view", "/w")) < 16_600


async def test_a_long_view_is_clipped_before_its_lines_are_numbered():
    """A view fills the context, or is cut at another place than upstream's."""
    view = await Desk(f=b"x\n" * 10_000)("view")
    assert view.count("\n") == 8_002
    assert "\n  8001\t<response clipped><NOTE>To save on context" in view
    assert "clipped" not in await Desk(f=b"x" * 16_000)("view")


async def test_a_text_that_grows_too_long_is_not_written():
    """Tabs become eight times as many bytes; the next read of the file fails."""
    desk = Desk(f=b"old\n" + b"\t" * (editor.MAX_FILE_BYTES // 4))
    told = await desk("str_replace", old_str="old", new_str="new")
    assert "Ran into a text of more than" in told and "while trying to write to" in told
    assert desk.sandbox.files[F].startswith(b"old")


async def test_an_error_that_quotes_a_megabyte_is_cut():
    """An observation as long as the action."""
    told = await Desk(f=b"x")("str_replace", old_str="y" * 1_000_000, new_str="z")
    assert len(told) < 31_000 and "truncated" in told


async def test_plain_has_no_head_line_and_outcomes_are_told_apart():
    """The journal cannot tell an edit from a refusal."""
    desk = Desk(f=b"x")
    good = await desk.observe("view", profile=PLAIN)
    assert good.text.startswith("Here's the result") and good.outcome == "finished"
    bad = await desk.observe("view", "rel", profile=PLAIN)
    assert bad.text.startswith("ERROR:\n") and bad.outcome == "refused"


def test_snippets_show_four_lines_about_the_change():
    """The policy sees too little of its edit, or wrong line numbers."""
    text = "\n".join(str(number) for number in range(1, 21))
    edit = edits.replace(text, F, "\n10\n", "\nten\nTEN\n")
    assert edit.message.split("\n")[1:-1] == [
        *(f"{n:6}\t{n}" for n in range(5, 10)), "    10\tten", "    11\tTEN",
        *(f"{n + 1:6}\t{n}" for n in range(11, 16)),
    ]  # fmt: skip
    edit = edits.insert(text, F, 10, "ten\nTEN")
    assert edit.message.split("\n")[1:-1] == [
        *(f"{n:6}\t{n}" for n in range(7, 11)), "    11\tten", "    12\tTEN",
        *(f"{n + 2:6}\t{n}" for n in range(11, 15)),
    ]  # fmt: skip
    assert edits.insert(text, F, 2, "x").message.split("\n")[1] == "     1\t1"
    assert edits.insert(text, F, 20, "x").after.endswith("20\nx")


@pytest.mark.parametrize(
    "view_range",
    [[1, 2, 3], ["1", "2"], [1.0, 2], {"a": 1, "b": 2}, "12", 7, [None, 1]],
)
def test_a_range_of_another_kind_is_refused(view_range):
    """JSON of another shape ends the request with an exception."""
    with pytest.raises(EditRefused, match="It should be a list of two integers"):
        edits.view("a\nb", F, view_range)


@pytest.mark.parametrize(
    ("view_range", "shown"),
    [(None, 3), ([], 3), ([3, 3], 1), ([1, -1], 3), ([3, -1], 1), ([1, 3], 3)],
)
def test_ranges_that_are_taken(view_range, shown):
    """A range at the file's edge is off by one."""
    assert edits.view("a\nb\nc", F, view_range).count("\t") == shown


@pytest.mark.parametrize("view_range", [[0, 1], [4, -1], [1, 4], [2, 1], [1, -2], [-1, 2], [1, 0]])
def test_ranges_that_are_refused(view_range):
    """A range outside of the file shows the wrong lines instead of an error."""
    with pytest.raises(EditRefused, match=r"Its (first|second) element"):
        edits.view("a\nb\nc", F, view_range)


def test_occurrences_are_named_by_line_overlapping_ones_too():
    """The policy is sent to the wrong lines."""
    with pytest.raises(EditRefused, match=r"in lines \[1, 3, 3, 4\]\. Please"):
        edits.replace("aa\nb\naaa\naa", F, "aa", "c")


@pytest.mark.parametrize("old", ["a", "a" * 999, "a" * 1000, "a" * 500_000])
def test_many_occurrences_cost_linear_time(old):
    """A file of one repeated letter blocks the server for minutes (checked by the test's time limit)."""
    with pytest.raises(EditRefused, match="Multiple occurrences") as refused:
        edits.replace("a" * 2_000_000, F, old, "b")
    assert refused.value.message.count("1, 1") <= edits.MAX_LINES_NAMED


LINES = st.lists(st.text("ab\t \u00e9", max_size=6), min_size=1, max_size=12)


@given(LINES, LINES, st.integers(0, 12))
def test_an_insert_leaves_the_other_lines_alone(lines, new, at):
    """An insert loses, doubles or joins lines."""
    at = min(at, len(lines))
    edit = edits.insert("\n".join(lines), F, at, "\n".join(new))
    assert edit.after.split("\n") == [line.expandtabs() for line in [*lines[:at], *new, *lines[at:]]]
    assert edit.before == "\n".join(lines).expandtabs()


@given(st.text("ab\n\t", max_size=30), st.text("ab\n", min_size=1, max_size=4), st.text("abc\n\t", max_size=6))
def test_a_replacement_is_pythons(text, old, new):
    """A replacement changes more or less than its one place."""
    count = text.expandtabs().count(old)
    if count == 1:
        assert edits.replace(text, F, old, new).after == text.expandtabs().replace(old, new.expandtabs())
    else:
        with pytest.raises(EditRefused):
            edits.replace(text, F, old, new)
