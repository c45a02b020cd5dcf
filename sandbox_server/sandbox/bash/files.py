"""Reading and writing files through one long-lived exec: some 3 ms an operation instead of the engine's 60."""

import asyncio
import secrets
import shlex
from typing import NoReturn

from sandbox_server.errors import CommandBroken, SandboxDiskFull, SandboxExhausted, SandboxLost
from sandbox_server.sandbox.bash.frames import LONGEST_WORD, BadFrame, line_of
from sandbox_server.sandbox.engine import Container, ExecStream

_TIMEOUT_S = 30.0  # for one operation
_ASIDE = 1 << 12  # bytes that the programs which an operation runs may say beside its answer

# Each operation ends with a line of its own nonce and a word; `head` reads exactly what it is told, and bash reads
# commands from a pipe byte by byte, so a file's bytes may follow its command on the same stream.
_SCRIPT = r"""
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
say() { printf '\n%s %s\n' "$1" "$2"; }
get() {
  if [[ -d $2 ]]; then say "$1" dir
  elif [[ ! -e $2 ]]; then if [[ -L $2 ]]; then say "$1" missing; else absent "$1" "$2"; fi
  elif [[ ! -f $2 ]]; then say "$1" special
  elif head -c "$3" -- "$2"; then say "$1" ok
  else say "$1" denied; fi
}
absent() {
  local up=$2
  while [[ $up == */* ]]; do
    up=${up%/*}
    [[ -e ${up:-/} && ! -d ${up:-/} ]] && { say "$1" notdir; return; }
  done
  say "$1" missing
}
put() {
  local dir=${2%/*} word=ok err
  if [[ -d $2 ]]; then word=dir
  elif [[ -e $2 && ! -f $2 ]]; then word=special
  elif ! mkdir -p -- "${dir:-/}" 2>/dev/null; then word=notdir
  elif [[ -e $2 && ! -w $2 ]] || ! : >> "$2"; then word=denied
  elif err=$(head -c "$3" 2>&1 > "$2"); then
    [[ $4 ]] && chmod "$4" -- "$2"
    say "$1" ok
    return
  else
    [[ $? == 153 || $err == *"No space left"* || $err == *quota* || $err == *"File too large"* ]] && word=full
    [[ $word == full ]] || word=denied
    say "$1" "$word"
    exit # how much of the data is still to come, nobody knows; the next operation opens a new lane
  fi 2>/dev/null
  head -c "$3" > /dev/null
  say "$1" "$word"
}
"""


class Files:
    """File operations on one container; one at a time, by a lock of its own."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self._exec_stream: ExecStream | None = None
        self._lock = asyncio.Lock()

    async def read(self, path: str, max_bytes: int) -> bytes:
        """See `sandbox.base.Sandbox.read_file`."""
        nonce = secrets.token_hex(8)
        word, data = await self._ask(nonce, f"get {nonce} {_word(path)} {max_bytes + 1}\n".encode(), max_bytes + 1)
        _raise_for(word, path)
        if len(data) > max_bytes:
            raise OverflowError(f"{path} is longer than {max_bytes} bytes")
        return data

    async def write(self, path: str, data: bytes, mode: int | None) -> None:
        """See `sandbox.base.Sandbox.write_file`."""
        nonce = secrets.token_hex(8)
        octal = "''" if mode is None else f"{mode:o}"
        if path.endswith("/"):
            raise IsADirectoryError(21, "Is a directory", path)
        command = f"put {nonce} {_word(path)} {len(data)} {octal}\n".encode()
        word, _ = await self._ask(nonce, command + data)
        _raise_for(word, path)

    def close(self) -> None:
        """Drop the lane; its bash ends with its input."""
        if self._exec_stream is not None:
            self._exec_stream.close()
            self._exec_stream = None

    async def _ask(self, nonce: str, request: bytes, most: int = _ASIDE) -> tuple[str, bytes]:
        """The word at the end of an answer, and the at most `most` bytes before it. Raises CommandBroken."""
        async with self._lock:
            for attempt in range(2):
                try:
                    async with asyncio.timeout(_TIMEOUT_S):
                        return await self._exchange(nonce, request, most)
                except TimeoutError:
                    self.close()
                    raise TimeoutError(f"no answer within {_TIMEOUT_S:g} s") from None
                except SandboxExhausted as e:
                    raise BlockingIOError(11, "Resource temporarily unavailable") from e
                except EOFError:
                    # the policy may have killed the lane's bash, or the container was started again
                    self.close()
                    if attempt:
                        await self._refused()
                except BaseException:
                    self.close()
                    raise
        raise AssertionError("unreachable")

    async def _refused(self) -> NoReturn:
        if not (await self._container.state()).running:
            raise SandboxLost(f"the container {self._container.id[:12]} is not running")
        # at its PID or memory limit the engine can start no process in it: the policy's doing
        raise BlockingIOError(11, "Resource temporarily unavailable")

    async def _exchange(self, nonce: str, request: bytes, most: int) -> tuple[str, bytes]:
        if self._exec_stream is None:
            self._exec_stream = await self._container.exec(["bash", "--noprofile", "--norc", "-p", "-s"], user="0")
            await self._exec_stream.write(_SCRIPT.encode())
        exec_stream = self._exec_stream
        sending = asyncio.create_task(exec_stream.write(request))
        mark = f"\n{nonce} ".encode()
        answer = bytearray()
        try:
            while (frame := await exec_stream.receive()) is not None:
                stream, data = frame
                if stream != 1:
                    continue
                seen = max(0, len(answer) - len(mark) - LONGEST_WORD)
                answer += data
                at = answer.find(mark, seen)
                if at > most or len(answer) > most + len(mark) + LONGEST_WORD:
                    raise BadFrame
                word = line_of(answer[at + len(mark) :], LONGEST_WORD) if at >= 0 else None
                if word is not None:
                    return word.decode("ascii", "replace"), bytes(answer[:at])
        except BadFrame:  # a `head` of the policy's own gives what it likes
            raise CommandBroken("An answer about a file") from None
        finally:
            sending.cancel()
        raise EOFError


def _word(path: str) -> str:
    """`path` from the root, as a word of bash."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise FileNotFoundError(2, "No such file or directory", path) from None
    if not path or "\0" in path:
        raise FileNotFoundError(2, "No such file or directory", path)
    return shlex.quote(path if path.startswith("/") else f"/{path}")


def _raise_for(word: str, path: str) -> None:
    match word:
        case "ok":
            return
        case "missing":
            raise FileNotFoundError(2, "No such file or directory", path)
        case "dir":
            raise IsADirectoryError(21, "Is a directory", path)
        case "notdir":
            raise NotADirectoryError(20, "Not a directory", path)
        case "special":
            raise PermissionError(1, "Not a regular file", path)
        case "full":
            raise SandboxDiskFull(f"no room to write {path} in the sandbox; remove files and try again")
        case _:
            raise PermissionError(13, "Permission denied", path)
