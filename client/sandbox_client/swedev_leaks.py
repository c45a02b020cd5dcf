"""Modules that veRL's swedev_utils re-exports through `import *` by importing them; its users rely on some.

They are packages of the trainer, not dependencies of this client. One that is not installed is left out, so that only
its use fails; one that is installed but broken fails here, as it would upstream.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def leaks() -> dict[str, Any]:
    """The re-exported names and their values, as far as installed."""
    found: dict[str, Any] = {"asyncio": asyncio, "hashlib": hashlib, "random": random}
    for package in ("requests", "aiohttp", "torch"):
        if find_spec(package):
            found[package] = import_module(package)
    if find_spec("tensordict"):
        found["TensorDict"] = import_module("tensordict").TensorDict
    return found
