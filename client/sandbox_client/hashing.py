"""veRL's hash of an instance id, which names the instance on the wire."""

from __future__ import annotations

import hashlib


def instance_hash(instance_id: str) -> int:
    """md5 of the id modulo 2**63, so that it fits an int64 tensor; django__django-11099 -> 1922554310125897704."""
    return int(hashlib.md5(instance_id.encode(), usedforsecurity=False).hexdigest(), 16) % 2**63
