"""Finds the samples and the scripts that build images: in the package, or around it in a checkout."""

from pathlib import Path

from sandbox_server.errors import ServiceError

_PACKAGE = Path(__file__).resolve().parents[1]


class KitMissing(ServiceError):
    """The package was installed without the kit, as in the server's own image."""

    code = "kit_missing"


def kit_path(name: str) -> Path:
    """A file or folder of the kit, `examples/...`, `scripts/...` or `deploy/...`: setup.py puts it into the wheel.

    Raises:
        KitMissing: it is not there.

    """
    for folder in (_PACKAGE / "kit", _PACKAGE.parent):
        if (path := folder / name).exists():
            return path
    raise KitMissing(f"this installation has no {name}; a wheel of sandbox-server or a checkout has it")
