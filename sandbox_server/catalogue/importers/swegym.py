"""SWE-Gym: SWE-bench's columns, eleven repositories of its own, graded by a fork that is in no release of swebench."""

from collections.abc import Iterator, Mapping, Sequence

from sandbox_server.catalogue.benchmark_rows import benchmark_instance
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.rows import OldRowConverter, SourceRow, Unconvertible

_REPOSITORIES = frozenset(
    {
        "bokeh/bokeh",
        "conan-io/conan",
        "dask/dask",
        "facebookresearch/hydra",
        "getmoto/moto",
        "iterative/dvc",
        "modin-project/modin",
        "pandas-dev/pandas",
        "project-monai/monai",
        "pydantic/pydantic",
        "python/mypy",
    }
)
_FORK = Unconvertible(
    "SWE-Gym is graded by its own fork of swebench; give the row test_cmd and log_parser to grade it."
)


class SwegymImporter:
    """Recognised by the repository, unless the row has the columns of a newer data set that has it too."""

    general = False

    def matches(self, row: Mapping[str, object]) -> bool:
        """See `Importer`."""
        newer = {"metadata", "install_config", "test_cmds"}
        return "test_patch" in row and row.keys().isdisjoint(newer) and str(row.get("repo")).lower() in _REPOSITORIES

    def convert(self, rows: Sequence[SourceRow], converter: OldRowConverter) -> Iterator[TaskInstance]:
        """See `Importer`."""
        return (
            benchmark_instance(row, dataset="swegym", images=(_image(row.text("instance_id")),), otherwise=_FORK)
            for row in rows
        )


def _image(instance_id: str) -> str:
    return f"xingyaoww/sweb.eval.x86_64.{instance_id.lower().replace('__', '_s_')}:latest"


IMPORTER = SwegymImporter()
