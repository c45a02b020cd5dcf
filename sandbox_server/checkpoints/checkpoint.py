"""A checkpoint: the files and the shell of a session between two actions, or the files of a box."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Part(StrEnum):
    """One stream of a checkpoint. All but UNDO come from a container and go to containers of the same session."""

    FILES = "files"
    """A tar archive of every path that differs from the image."""
    FOLDERS = "folders"
    """The changed folders; each name ends in NUL."""
    CONTENTS = "contents"
    """All names in the changed folders, each ending in NUL. Files of the image that are not listed were deleted."""
    SHELL = "shell"
    """A script that recreates the session's shell state in a fresh shell."""
    UNDO = "undo"
    """The editor's undo history."""


class LeftOut(NamedTuple):
    """What no checkpoint of the files has, because it is not in the container's own files."""

    programs: Sequence[str]
    """Names of running programs."""
    volumes: Sequence[str]
    """Paths of volumes that the image declares."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A stored checkpoint."""

    sid: str
    """For a box or a snapshot: its name, see `boxes.states`."""
    seq: int
    """The action after which it was taken; 0: before the first action, or of a box."""
    image: str
    """Name of the prepared image that the session's container was created from; for a box, the image's id."""
    made_at: float
    """Unix seconds."""
    talk_turns: int = 0
    """As in `SessionRecord`."""
    left_out: tuple[str, ...] = ()
    """What was left out: running programs, open file descriptors of the shell, volumes."""
    notice: str = ""
    """`SessionRecord.notice` at that time: a message for the next observation."""
    untold: int = 0
    """`SessionRecord.differences` at that time."""
    blocks: Mapping[Part, tuple[str, ...]] = field(default_factory=dict)
    """Part -> names of its blocks, in order."""
    sizes: Mapping[Part, int] = field(default_factory=dict)
    """Part -> bytes, uncompressed."""
    stands: bool = False
    """Never removed to make room, because nothing else can restore it: the files of a box."""

    def to_json(self) -> dict[str, object]:
        """As JSON values."""
        return {**asdict(self), "differences": []}  # which older versions require

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> "Checkpoint":
        """Parse the result of `to_json`. Raises KeyError, TypeError or ValueError for anything else."""
        blocks, sizes = values["blocks"], values["sizes"]
        left_out = values["left_out"]
        if not (isinstance(blocks, dict) and isinstance(sizes, dict)):
            raise TypeError("a checkpoint has blocks and sizes")
        if not isinstance(left_out, list):
            raise TypeError("a checkpoint has a list of what is left out")
        if values["differences"]:
            raise ValueError("an older version wrote it, without what the next observation must tell")
        return cls(
            sid=str(values["sid"]),
            seq=int(str(values["seq"])),
            image=str(values["image"]),
            made_at=float(str(values["made_at"])),
            talk_turns=int(str(values["talk_turns"])),
            left_out=tuple(map(str, left_out)),
            notice=str(values.get("notice", "")),
            untold=int(str(values.get("untold", 0))),
            blocks={Part(part): tuple(map(str, names)) for part, names in blocks.items()},
            sizes={Part(part): int(size) for part, size in sizes.items()},
            stands=bool(values.get("stands", False)),
        )


def fits(checkpoint: Checkpoint, seq: int, image: str, *, undone: Sequence[tuple[int, int]], whole: bool) -> bool:
    """Whether replaying the later actions on this checkpoint leads to the session's state after action `seq`.

    `image` must be the checkpoint's. `undone`: ranges of undone actions; a checkpoint within one does not fit. `whole`:
    only accept a checkpoint that left nothing out.
    """
    at = checkpoint.seq
    if at > seq or checkpoint.image != image or (whole and (checkpoint.left_out or checkpoint.notice)):
        return False
    return not any(first <= at < last for first, last in undone)
