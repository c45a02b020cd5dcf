"""Parquet files. Apart from `read`, which imports this only when it meets one: pyarrow is heavy."""

from pathlib import Path

import pyarrow
import pyarrow.parquet

from sandbox_server.errors import MalformedRequest


def read_parquet(path: Path) -> list[dict[str, object]]:
    """All rows, each column as its Python value.

    Raises:
        MalformedRequest: it is no whole parquet file.

    """
    try:
        # one file, one thread: the CLI shares its machine with sandboxes
        table = pyarrow.parquet.ParquetFile(path).read(use_threads=False)
    except (pyarrow.ArrowException, OSError) as error:
        raise MalformedRequest(f"cannot read {path}: {error}") from None
    rows: list[dict[str, object]] = table.to_pylist()
    return rows
