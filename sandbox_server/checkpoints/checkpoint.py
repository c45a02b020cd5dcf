"""A checkpoint: the files and the shell of a session between two actions, or the files of a box."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum


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
    """What was left out: names of running programs, numbers of open file descriptors of the shell."""
    differences: tuple[str, ...] = ()
    """Actions that ended differently when they were replayed for this checkpoint."""
    blocks: Mapping[Part, tuple[str, ...]] = field(default_factory=dict)
    """Part -> names of its blocks, in order."""
    sizes: Mapping[Part, int] = field(default_factory=dict)
    """Part -> bytes, uncompressed."""
    stands: bool = False
    """Never removed to make room, because nothing else can restore it: the files of a box."""

    def to_json(self) -> dict[str, object]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> "Checkpoint":
        """Parse the result of `to_json`. Raises KeyError, TypeError or ValueError for anything else."""
        blocks, sizes = values["blocks"], values["sizes"]
        left_out, differences = values["left_out"], values["differences"]
        if not (isinstance(blocks, dict) and isinstance(sizes, dict)):
            raise TypeError("a checkpoint has blocks and sizes")
        if not (isinstance(left_out, list) and isinstance(differences, list)):
            raise TypeError("a checkpoint has lists of what is left out and what differs")
        return cls(
            sid=str(values["sid"]),
            seq=int(str(values["seq"])),
            image=str(values["image"]),
            made_at=float(str(values["made_at"])),
            talk_turns=int(str(values["talk_turns"])),
            left_out=tuple(map(str, left_out)),
            differences=tuple(map(str, differences)),
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
    if at > seq or checkpoint.image != image or (whole and checkpoint.left_out):
        return False
    return not any(first <= at < last for first, last in undone)
