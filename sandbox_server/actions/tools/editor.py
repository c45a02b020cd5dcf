r"""`str_replace_editor`: views and edits files of the sandbox from outside it, with the texts of openhands-aci 0.1.2.

As there, files are UTF-8 text with universal newlines: an edit writes `\n` where the file had `\r\n` or `\r`, and never
adds a newline at the end. Deliberate differences: a directory given by a symbolic link is listed (0.1.2 shows only the
link, and the workspace is a link); files past MAX_FILE_BYTES are refused; a failed write leaves the file unchanged.
"""

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from sandbox_server.actions import edits
from sandbox_server.actions.base import Call, Observation, ToolContext
from sandbox_server.actions.content import scalar_text
from sandbox_server.actions.edits import Edit, EditRefused
from sandbox_server.actions.profiles import cut_middle, headed
from sandbox_server.errors import InfrastructureError

MAX_FILE_BYTES = 8 << 20
"""Longest file that is read or written; the undo stack holds texts of up to this size."""
_TOO_LONG = f"a text of more than {MAX_FILE_BYTES} bytes (use grep -n, sed -n or head in a shell)"
_MAX_PATH_BYTES = 4095
_LIST_TIMEOUT_S = 30.0
_COMMANDS = ("view", "create", "str_replace", "insert", "undo_edit")
_ERRNO: Mapping[type[OSError], int] = {
    FileNotFoundError: errno.ENOENT,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
    PermissionError: errno.EACCES,
}


class StrReplaceEditor:
    """See the module."""

    name = "str_replace_editor"

    async def run(self, call: Call, context: ToolContext) -> Observation:
        """Check the path, then the arguments, then read and write, so that errors come in upstream's order.

        Raises:
            SandboxLost, EngineUnavailable, SandboxDiskFull.

        """
        arguments = {
            name: scalar_text(value) if isinstance(value, str) else value for name, value in call.arguments.items()
        }
        editing = _Editing(context, PurePosixPath(str(arguments["path"])))
        try:
            text, outcome = await editing.perform(str(arguments["command"]), arguments), "finished"
        except EditRefused as refused:
            text, outcome = cut_middle(f"ERROR:\n{refused.message}"), "refused"
        return Observation(headed(self.name, text, context.profile), outcome=outcome)


@dataclass(frozen=True, slots=True)
class _Editing:
    """One call's path and the operations on it."""

    context: ToolContext
    path: PurePosixPath

    @property
    def _user(self) -> str:
        return self.context.instance.sandbox.user

    async def perform(self, command: str, arguments: Mapping[str, object]) -> str:
        if not self.path.is_absolute():
            hint = f"The path should be an absolute path, starting with `/`. Maybe you meant {self.path}?"
            raise edits.invalid("path", self.path, hint)
        if command == "create":
            return await self._create(arguments)
        try:
            content: bytes | Exception = await self._read(MAX_FILE_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            hint = f"The path {self.path} does not exist. Please provide a valid path."
            raise edits.invalid("path", self.path, hint) from None
        except IsADirectoryError:
            if command == "view":
                return await self._list(arguments)
            hint = f"The path {self.path} is a directory and only the `view` command can be used on directories."
            raise edits.invalid("path", self.path, hint) from None
        except (OSError, OverflowError) as error:
            content = error  # reported after the arguments were checked
        return await self._on_file(command, content, arguments)

    async def _on_file(self, command: str, content: bytes | Exception, arguments: Mapping[str, object]) -> str:
        match command:
            case "view":
                return edits.view(self._text(content), str(self.path), arguments.get("view_range"))
            case "str_replace":
                return await self._str_replace(content, arguments)
            case "insert":
                return await self._insert(content, arguments)
            case "undo_edit":
                return await self._undo()
        allowed = ", ".join(_COMMANDS)
        raise EditRefused(f"Unrecognized command {command}. The allowed commands for the oh_editor tool are: {allowed}")

    async def _create(self, arguments: Mapping[str, object]) -> str:
        if "\0" in str(self.path):
            raise EditRefused(f"Ran into embedded null byte while trying to write to {self.path}")
        try:
            await self._read(0)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (IsADirectoryError, OverflowError):
            raise self._exists() from None
        except OSError as error:
            raise self._ran_into(error, "write to") from None
        else:
            raise self._exists()
        text = arguments.get("file_text")
        if not text:
            raise edits.missing("file_text", "create")
        await self._require_parent()
        await self._write(str(text), undo_to=str(text))
        return f"File created successfully at: {self.path}"

    def _exists(self) -> EditRefused:
        hint = f"File already exists at: {self.path}. Cannot overwrite files using command `create`."
        return edits.invalid("path", self.path, hint)

    async def _require_parent(self) -> None:
        """Refuse a path whose folder is missing, as upstream does; the sandbox would create the folder."""
        try:
            await self.context.sandbox.read_file(str(self.path.parent), max_bytes=0, user=self._user)
        except IsADirectoryError:
            return
        except OSError as error:
            raise self._ran_into(error, "write to") from None
        except OverflowError:
            pass
        raise self._ran_into(NotADirectoryError(), "write to")

    async def _str_replace(self, content: bytes | Exception, arguments: Mapping[str, object]) -> str:
        old, new = arguments.get("old_str"), arguments.get("new_str")
        if not old:
            raise edits.missing("old_str", "str_replace")
        if new == old:
            hint = "No replacement was performed. `new_str` and `old_str` must be different."
            raise edits.invalid("new_str", new, hint)
        return await self._apply(edits.replace(self._text(content), str(self.path), str(old), str(new or "")))

    async def _insert(self, content: bytes | Exception, arguments: Mapping[str, object]) -> str:
        line, new = arguments.get("insert_line"), arguments.get("new_str")
        if not isinstance(line, int):
            raise edits.missing("insert_line", "insert")
        if not new:
            raise edits.missing("new_str", "insert")
        return await self._apply(edits.insert(self._text(content), str(self.path), line, str(new)))

    async def _apply(self, edit: Edit) -> str:
        await self._write(edit.after, undo_to=edit.before)
        return edit.message

    async def _undo(self) -> str:
        history, path = self.context.history, str(self.path)
        text = await history.pop(path)
        if text is None:
            raise EditRefused(f"No edit history found for {path}.")
        try:
            await self.context.sandbox.write_file(path, text.encode(), user=self._user)
        except (OSError, InfrastructureError) as error:
            await history.push(path, text)
            if isinstance(error, OSError):
                raise self._ran_into(error, "write to") from None
            raise
        return f"Last edit to {path} undone successfully. {edits.numbered(text, path)}"

    async def _list(self, arguments: Mapping[str, object]) -> str:
        view_range = arguments.get("view_range")
        if view_range:
            hint = "The `view_range` parameter is not allowed when `path` points to a directory."
            raise edits.invalid("view_range", view_range, hint)
        found = await self.context.sandbox.exec(
            ["find", "-H", str(self.path), "-maxdepth", "2", "-not", "-path", r"*/\.*"],
            timeout_s=min(_LIST_TIMEOUT_S, self.context.command_timeout_s),
            user=self._user or None,
        )
        if found.timed_out:
            raise EditRefused(f"Ran into a time-out while trying to read {self.path}")
        if errors := found.stderr.text():
            raise EditRefused(edits.clip(errors))
        head = f"Here's the files and directories up to 2 levels deep in {self.path}, excluding hidden items:"
        return f"{head}\n{edits.clip(found.stdout.text())}\n"

    async def _read(self, max_bytes: int) -> bytes:
        """Raises OSError, OverflowError."""
        path = str(self.path)
        if "\0" in path:
            raise FileNotFoundError
        if len(path.encode()) > _MAX_PATH_BYTES:
            raise OSError(errno.ENAMETOOLONG, "")
        return await self.context.sandbox.read_file(path, max_bytes=max_bytes, user=self._user)

    def _text(self, content: bytes | Exception) -> str:
        if isinstance(content, Exception):
            raise self._ran_into(content, "read")
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise self._ran_into(error, "read") from None
        return text.replace("\r\n", "\n").replace("\r", "\n")

    async def _write(self, text: str, *, undo_to: str) -> None:
        data, path = text.encode(), str(self.path)
        if len(data) > MAX_FILE_BYTES:
            raise self._ran_into(OverflowError(), "write to")
        await self.context.history.push(path, undo_to)
        try:
            await self.context.sandbox.write_file(path, data, user=self._user)
        except (OSError, InfrastructureError) as error:
            await self.context.history.pop(path)
            if isinstance(error, OSError):
                raise self._ran_into(error, "write to") from None
            raise

    def _ran_into(self, error: Exception, doing: str) -> EditRefused:
        """The error as Python's own file functions would word it in the sandbox."""
        if isinstance(error, OverflowError):
            worded = _TOO_LONG
        elif isinstance(error, OSError):
            number = error.errno or _ERRNO.get(type(error), errno.EIO)
            worded = str(OSError(number, os.strerror(number), str(self.path)))
        else:
            worded = str(error)
        return EditRefused(f"Ran into {worded} while trying to {doing} {self.path}")


TOOL = StrReplaceEditor()
