"""Which files a diff changes and which it creates. Pure."""

from dataclasses import dataclass

from sandbox_server.catalogue.changes import UnreadablePatch, read_changes


@dataclass(frozen=True, slots=True)
class PatchFiles:
    """Paths relative to the repository, in the diff's order."""

    existing: tuple[str, ...]
    """Existed before: modified, deleted, or renamed away."""
    new: tuple[str, ...]
    """Created by the diff: added, or the new name of a renamed or copied file."""


def patch_files(diff: str) -> PatchFiles:
    """The files that a diff touches; none for an empty diff.

    Raises:
        ValueError: it is not empty and not a readable diff.

    """
    try:
        changes = read_changes(diff)
    except UnreadablePatch as error:
        raise ValueError(f"no readable diff: {error}") from None
    existing = dict.fromkeys(change.old for change in changes if change.old is not None)
    made = dict.fromkeys(change.new for change in changes if change.new is not None)
    return PatchFiles(tuple(existing), tuple(path for path in made if path not in existing))
