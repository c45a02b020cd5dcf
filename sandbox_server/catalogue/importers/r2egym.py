"""R2E-Gym: the image holds hidden tests and a script that runs them; the row has the status that each must end with."""

from collections.abc import Iterator, Mapping, Sequence

from sandbox_server.catalogue.instance import R2eGrader, SandboxSpec, TaskInstance
from sandbox_server.catalogue.rows import OldRowConverter, SourceRow

KEPT = "/r2e"
"""Folder of the hidden tests, outside the repository, so that no patch reaches it."""
_WORKDIR = "/testbed"
_TIMEOUT_S = 300.0  # R2E-Gym's own
_SETUP = f"""set -e
mkdir -m 700 -- {KEPT}
for file in run_tests.sh r2e_tests /r2e_tests; do
  if [[ -e $file && ! -L $file ]]; then mv -- "$file" {KEPT}/; fi
  rm -rf -- "$file"
done
[[ -f {KEPT}/run_tests.sh && -d {KEPT}/r2e_tests ]] || {{ echo "the image lacks its hidden tests" >&2; exit 3; }}
find . {KEPT} -path ./.venv -prune -o -name '*.pyc' -exec rm -f {{}} +
"""
_ACTIVATE = f"if [[ -f {_WORKDIR}/.venv/bin/activate ]]; then . {_WORKDIR}/.venv/bin/activate; fi"


class R2eGymImporter:
    """Recognised by the expected status of each test and the name of the repository."""

    general = False

    def matches(self, row: Mapping[str, object]) -> bool:
        """See `Importer`."""
        return {"repo_name", "docker_image", "expected_output_json"} <= row.keys()

    def convert(self, rows: Sequence[SourceRow], converter: OldRowConverter) -> Iterator[TaskInstance]:
        """See `Importer`; rows have no id, so it is made of the repository and the fixing commit."""
        return (_instance(row) for row in rows)


def _instance(row: SourceRow) -> TaskInstance:
    expected = row.mapping("expected_output_json")
    if not expected or not all(isinstance(status, str) for status in expected.values()):
        raise row.rejected("expected_output_json names no test with its status")
    repo, image = row.text("repo_name"), row.text("docker_image")
    commit = row.text("commit_hash", default="") or image.rpartition(":")[2]
    return TaskInstance(
        instance_id=row.text("instance_id", default=f"{repo}__{commit}"),
        dataset="r2egym",
        repo=repo,
        problem_statement=_issue(row.text("problem_statement", default="")),
        sandbox=SandboxSpec(
            images=(image,), workdir=_WORKDIR, activate=_ACTIVATE, setup_commands=(_SETUP,), hidden_paths=(KEPT,)
        ),
        dialect=row.text("dialect", default="") or None,
        grader=R2eGrader(expected={name: str(status) for name, status in expected.items()}),
        eval_timeout_s=row.number("eval_timeout_s", default=_TIMEOUT_S),
        row_sha256=row.sha256,
    )


def _issue(text: str) -> str:
    """The text between [ISSUE] and [/ISSUE], or all of it."""
    _, found, rest = text.partition("[ISSUE]")
    return rest.partition("[/ISSUE]")[0].strip() if found else text


IMPORTER = R2eGymImporter()
