"""Puts the samples and the scripts that make images into the wheel, as sandbox_server/kit/.

In the repository they stay where they are, once. An editable install has no kit: there they are found in the checkout.
All else is in pyproject.toml.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

KIT = Path("sandbox_server", "kit")
PATTERNS = ("examples/**/*", "scripts/*-image.sh", "deploy/search-image/*")
SCRIPTS = ("apt.sh", "certificates.sh", "images.sh", "python.sh")


def sources() -> list[Path]:
    """Files of the kit, relative to the checkout; none where only the package was copied (the server's Dockerfile)."""
    found = [path for pattern in PATTERNS for path in Path().glob(pattern)]
    found += [path for name in SCRIPTS if (path := Path("scripts", name)).exists()]
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


class BuildWithKit(build_py):
    """The package, and the kit in it at the same paths as in the checkout."""

    def run(self) -> None:
        """Copy the package, then the kit into it."""
        super().run()
        if self.editable_mode:
            return
        for path in sources():
            target = Path(self.build_lib, KIT, path)
            self.mkpath(str(target.parent))
            self.copy_file(str(path), str(target))  # with its mode: some scripts call each other

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """What a wheel has."""
        kit = [] if self.editable_mode else [str(Path(self.build_lib, KIT, path)) for path in sources()]
        return [*super().get_outputs(include_bytecode), *kit]

    def get_source_files(self) -> list[str]:
        """What a source distribution has."""
        return [*super().get_source_files(), *map(str, sources())]


setup(cmdclass={"build_py": BuildWithKit})
