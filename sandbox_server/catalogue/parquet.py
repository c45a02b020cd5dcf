"""Reads parquet files. Apart from `read`, which imports this only if needed: pyarrow is heavy."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet

from sandbox_server.errors import MalformedRequest

_BATCH = 256


def read_parquet(path: Path) -> Iterator[dict[str, object]]:
    """The rows, each column as its Python value; some hundred are in memory at a time.

    Raises:
        MalformedRequest: the file is not a complete parquet file.

    """
    try:
        # single-threaded: the CLI shares its machine with sandboxes
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(_BATCH, use_threads=False):
            yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise MalformedRequest(f"cannot read {path}: {error}") from None
