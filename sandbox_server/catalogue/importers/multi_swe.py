"""Multi-SWE-bench and Multi-SWE-RL: columns of their own, parsers in their harness."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sandbox_server.catalogue.benchmark_rows import benchmark_instance
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.rows import OldRowConverter, SourceRow, Unconvertible

_OWN = Unconvertible(
    "Multi-SWE-bench is graded by parsers of its own harness; give the row test_cmd and log_parser to grade it."
)
_F2P = ("f2p_tests", "s2p_tests", "n2p_tests")
_HIDDEN = tuple(
    f"/home/{name}"
    for name in ("fix.patch", "test.patch", "prepare.sh", "run.sh", "test-run.sh", "fix-run.sh", "check_git_changes.sh")
)

_FIX = "rm -f -- /home/fix.patch /home/fix-run.sh"
"""Run in gradings too: while it is tested, product code could apply the fix to itself."""
_TESTS = "rm -f -- /home/test.patch /home/test-run.sh"
"""Run in gradings too, unless these files run the tests: beside an altered test they would show the true one."""


class MultiSweImporter:
    """Recognised by the organisation, the number and the patch that fixes it."""

    general = False

    def matches(self, row: Mapping[str, object]) -> bool:
        """See `Importer`."""
        return {"org", "repo", "number", "base", "fix_patch"} <= row.keys()

    def convert(self, rows: Sequence[SourceRow], converter: OldRowConverter) -> Iterator[TaskInstance]:
        """See `Importer`."""
        return (_instance(row) for row in rows)


def _instance(row: SourceRow) -> TaskInstance:
    org, name, number = row.text("org"), row.text("repo"), row.text("number")
    f2p = [test for key in _F2P for test in _tests(row, key)]
    issues = row.fields.get("resolved_issues")
    told = [_told(issue) for issue in issues] if isinstance(issues, Sequence) and not isinstance(issues, str) else []
    own: dict[str, object] = {
        "instance_id": row.text("instance_id", default=f"{org}__{name}-{number}"),
        "version": number,
        "base_commit": str(row.mapping("base").get("sha") or ""),
        "problem_statement": "\n\n".join(filter(None, told)) or _told(row.fields),
        "patch": row.text("fix_patch"),
        "test_patch": row.text("test_patch", default=""),
        "FAIL_TO_PASS": list(dict.fromkeys(f2p)),
        "PASS_TO_PASS": list(_tests(row, "p2p_tests")),
        "workdir": f"/home/{name}",
    }
    ours = ("test_cmd", "log_parser", "image", "workdir", "activate", "install", "eval_timeout_s", "dialect", "profile")
    given = {key: row.fields[key] for key in (*ours, "language") if row.fields.get(key) is not None}
    image = f"mswebench/{org}_m_{name}:pr-{number}".lower()
    whole = replace(row, fields={**own, **given, "repo": f"{org}/{name}"})
    made = benchmark_instance(whole, dataset="multi-swe-bench", images=(image,), otherwise=_OWN)
    setup = (_FIX,) if "/home/test" in str(given.get("test_cmd", "")) else (_FIX, _TESTS)
    sandbox = made.sandbox.model_copy(update={"hidden_paths": _HIDDEN, "setup_commands": setup})
    return made.model_copy(update={"row_sha256": row.sha256, "sandbox": sandbox})


def _tests(row: SourceRow, key: str) -> Sequence[str]:
    """Names of tests: the keys of an object, or in some exports its list `name`."""
    tests = row.mapping(key)
    listed = tests.get("name")
    return [str(name) for name in listed] if isinstance(listed, Sequence) and not isinstance(listed, str) else [*tests]


def _told(issue: object) -> str:
    if not isinstance(issue, Mapping):
        return ""
    return "\n".join(str(issue[key]) for key in ("title", "body") if issue.get(key))


IMPORTER = MultiSweImporter()
