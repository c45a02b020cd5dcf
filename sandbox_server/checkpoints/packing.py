"""Blocks as they are stored: compressed, named by the SHA-256 of their content, and checked whenever they are read."""

import hashlib
import importlib
from functools import lru_cache
from typing import Any

_LEVEL = 1  # 500 MB/s; level 3 saves a tenth of the space and takes twice the time
_MOST = 8 << 20  # bytes of a block, uncompressed; twice what `blocks` cuts
_LENGTH = 4  # bytes before a compressed block, with its size

MOST_PACKED = _MOST + (1 << 20)
"""Bytes that no packed block exceeds."""


def name_of(block: bytes) -> str:
    """The block's name."""
    return hashlib.sha256(block).hexdigest()


def pack(block: bytes) -> bytes:
    """The block as it is stored."""
    packed: bytes = len(block).to_bytes(_LENGTH, "big") + _zstd().compress(block, asbytes=True)
    return packed


def unpack(name: str, packed: bytes) -> bytes:
    """The block. Raises ValueError: it is not the one of this name. OSError: it cannot be decompressed."""
    size = int.from_bytes(packed[:_LENGTH], "big")
    if size > _MOST:
        raise ValueError(f"block {name} says that it has {size} bytes")
    block: bytes = _zstd().decompress(packed[_LENGTH:], decompressed_size=size, asbytes=True)
    if name_of(block) != name:
        raise ValueError(f"block {name} has another content")
    return block


@lru_cache
def _zstd() -> Any:
    # imported when the first checkpoint is written, in its thread: it takes 0.3 s
    return importlib.import_module("pyarrow").Codec("zstd", compression_level=_LEVEL)
