"""Plugins: every module of a folder is imported once and provides one named object."""

import importlib
import pkgutil
from types import ModuleType


def discover(package: ModuleType, attribute: str) -> dict[str, object]:
    """Import each module of `package` and return {module name: its `attribute`}. Modules named `_*` are skipped.

    Raises:
        RuntimeError: a module lacks the attribute. The start must stop, because a plugin that is silently
            missing shows up weeks later as a wrong reward.

    """
    found: dict[str, object] = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda i: i.name):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        if not hasattr(module, attribute):
            raise RuntimeError(f"{module.__name__} defines no {attribute}")
        found[info.name] = getattr(module, attribute)
    return found
