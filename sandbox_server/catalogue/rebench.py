"""SWE-rebench: rows of SWE-bench's shape whose `install_config` says how their tests run and how their log is read."""

import re
from dataclasses import replace

from sandbox_server.catalogue.log_parsers import LOG_PARSERS
from sandbox_server.catalogue.rows import SourceRow, Unconvertible

_V2_IMAGE = "swerebenchv2/"
_TIMING = re.compile(r"\[\d+(?:\.\d+)?\s*m?s\]|\(\d+(?:\.\d+)?\s*m?s\)|\bin \d+(?:\.\d+)?\s*(?:msec|sec|ms|s)\b")


def completed(row: SourceRow) -> SourceRow | Unconvertible | None:
    """The row with our own keys `test_cmd`, `log_parser`, `install` and `workdir`; None if it is of another data set.

    The parser is swebench's of the same name, from which SWE-rebench's are derived.

    Raises:
        RowRejected: install_config is no object.
    """
    if "install_config" not in row.fields:
        return None
    config = replace(row, fields=row.mapping("install_config"))
    parser = config.text("log_parser", default="").rpartition("/")[2]
    if parser not in LOG_PARSERS:
        return Unconvertible(
            f"SWE-rebench grades it by a log parser of its own, {parser or 'which it does not name'!r}; give the row"
            " test_cmd and one of swebench's as log_parser to grade it."
        )
    names = row.names("FAIL_TO_PASS", "fail_to_pass") + row.names("PASS_TO_PASS", "pass_to_pass")
    if timed := next((name for name in names if _TIMING.search(name)), ""):
        return Unconvertible(f"Names of its tests hold the time that they took, which is never the same: {timed!r}.")
    second = _V2_IMAGE in row.text("image_name", "docker_image", "image", default="")
    own = {
        "test_cmd": _commands(config, "test_cmd"),
        "install": "\n".join(_commands(config, "install")) if second else "",
        "activate": "" if second else "source /opt/miniconda3/bin/activate testbed",
        "log_parser": parser,
        "workdir": f"/{row.text('repo').rpartition('/')[2]}" if second else "/testbed",
        "dataset": "swe-rebench",
    }
    return replace(row, fields={**own, **{name: value for name, value in row.fields.items() if value is not None}})


def _commands(config: SourceRow, key: str) -> list[str]:
    value = config.fields.get(key)
    return [value] if isinstance(value, str) else list(config.names(key))
