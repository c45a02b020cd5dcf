"""A session in which a wrong change was made, and then something broken."""

from hacks.base import Play, Target


def spoilt(target: Target, commands: str) -> Play:
    """A change of the package, so that there is a patch to take, and these commands."""
    return Play({f"{target.package}/__init__.py": f"{target.init}\nSPOILT = True\n"}, commands)
