"""The stored form of blocks: compressed, named by the SHA-256 of the content, and verified at every read."""

import hashlib
import importlib
from functools import lru_cache
from typing import Any

_LEVEL = 1  # 500 MB/s; level 3 saves another tenth but takes twice the time
_MOST = 8 << 20  # bytes of a block, uncompressed; twice the size at which `blocks` cuts
_LENGTH = 4  # bytes of the size that precedes a compressed block

MOST_PACKED = _MOST + (1 << 20)
"""Maximum size of a packed block in bytes."""


def name_of(block: bytes) -> str:
    """The name of a block: the SHA-256 of its content."""
    return hashlib.sha256(block).hexdigest()


def pack(block: bytes) -> bytes:
    """Compress a block."""
    packed: bytes = len(block).to_bytes(_LENGTH, "big") + _zstd().compress(block, asbytes=True)
    return packed


def unpack(name: str, packed: bytes) -> bytes:
    """Decompress a block. Raises ValueError: it does not match `name`. OSError: it cannot be decompressed."""
    size = int.from_bytes(packed[:_LENGTH], "big")
    if size > _MOST:
        raise ValueError(f"block {name} claims a size of {size} bytes")
    block: bytes = _zstd().decompress(packed[_LENGTH:], decompressed_size=size, asbytes=True)
    if name_of(block) != name:
        raise ValueError(f"the content of block {name} does not match its name")
    return block


@lru_cache
def _zstd() -> Any:
    # imported in the thread that writes the first checkpoint: the import takes 0.3 s
    return importlib.import_module("pyarrow").Codec("zstd", compression_level=_LEVEL)
