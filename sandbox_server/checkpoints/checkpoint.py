"""What a checkpoint is: a session between two of its actions, as files and a shell; or a box, as files."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum


class Part(StrEnum):
    """One stream of a checkpoint. All but UNDO come out of a container and go into containers of the same session."""

    FILES = "files"
    """A tar archive of every path that differs from the image."""
    FOLDERS = "folders"
    """The changed folders, each name ending in NUL."""
    CONTENTS = "contents"
    """All names in those folders, each ending in NUL: what the image has besides was deleted."""
    SHELL = "shell"
    """A script that gives a fresh shell the state of the session's."""
    UNDO = "undo"
    """The editor's undo history."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A stored checkpoint."""

    sid: str
    """A box's or a snapshot's name too, see `boxes.files`."""
    seq: int
    """It was taken after this action; 0: before the first one, or of a box."""
    image: str
    """Name of the prepared image that the session's container was made from; of a box's, its id."""
    made_at: float
    """Unix seconds."""
    talk_turns: int = 0
    """As in `SessionRecord`."""
    left_out: tuple[str, ...] = ()
    """What cannot be carried: running programs by name, open files of the shell by number."""
    differences: tuple[str, ...] = ()
    """Actions that ended otherwise than in the session, when they were run again for this checkpoint."""
    blocks: Mapping[Part, tuple[str, ...]] = field(default_factory=dict)
    """Part -> names of its blocks, in order."""
    sizes: Mapping[Part, int] = field(default_factory=dict)
    """Part -> bytes, uncompressed."""
    stands: bool = False
    """It is not removed to make room: a box's files, which nothing else can bring back."""

    def to_json(self) -> dict[str, object]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> "Checkpoint":
        """Read what `to_json` wrote. Raises KeyError, TypeError, ValueError: it is something else."""
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
    """Whether actions behind the checkpoint lead to where its session was after action `seq`, in this image.

    `undone`: ranges of actions that do not lead there; a checkpoint within one does not fit. `whole`: it must have left
    nothing out.
    """
    at = checkpoint.seq
    if at > seq or checkpoint.image != image or (whole and checkpoint.left_out):
        return False
    return not any(first <= at < last for first, last in undone)
