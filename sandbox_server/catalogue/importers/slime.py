"""slime's rows: {prompt, label, metadata}. Graders in slime's own order: swepro, eval_cmd, f2p_script."""

from collections.abc import Iterator, Mapping, Sequence

from sandbox_server.catalogue.instance import F2pScriptGrader, SandboxSpec, ScriptGrader, TaskInstance
from sandbox_server.catalogue.rows import OldRowConverter, SourceRow


class SlimeImporter:
    """Told by `metadata` with an image, or with one of slime's graders."""

    general = False

    def matches(self, row: Mapping[str, object]) -> bool:
        """See `Importer`."""
        return "metadata" in row and not row.keys().isdisjoint(("prompt", "label"))

    def convert(self, rows: Sequence[SourceRow], converter: OldRowConverter) -> Iterator[TaskInstance]:
        """See `Importer`."""
        return (self._instance(row, SourceRow(row.line, row.mapping("metadata"))) for row in rows)

    def _instance(self, row: SourceRow, metadata: SourceRow) -> TaskInstance:
        remote = SourceRow(row.line, metadata.mapping("remote_env_info"))
        grader, because = _grader(metadata, remote)
        prompt = row.fields.get("prompt")
        return TaskInstance(
            instance_id=_first(metadata, remote, "instance_id") or row.text("label"),
            dataset="slime",
            repo=_first(metadata, remote, "repo"),
            version=_first(metadata, remote, "version"),
            base_commit=_first(metadata, remote, "base_commit"),
            problem_statement=_first(metadata, remote, "problem_statement")
            or (prompt if isinstance(prompt, str) else ""),  # a chat's messages are no problem statement
            sandbox=SandboxSpec(
                images=(_first(metadata, remote, "image") or metadata.text("image"),),
                workdir=_first(metadata, remote, "workdir") or "/testbed",
                setup_commands=_pre_commands(metadata) or _pre_commands(remote),
            ),
            dialect=metadata.text("dialect", default="") or None,
            grader=grader,
            ungradable_because=because,
            fail_to_pass=remote.names("FAIL_TO_PASS", "fail_to_pass"),
            pass_to_pass=remote.names("PASS_TO_PASS", "pass_to_pass"),
            eval_timeout_s=metadata.number("eval_timeout_s", default=600.0),  # slime's own default
            gold_patch=_first(metadata, remote, "patch"),
            row_sha256=row.sha256,
        )


def _grader(metadata: SourceRow, remote: SourceRow) -> tuple[ScriptGrader | F2pScriptGrader | None, str]:
    if metadata.mapping("swepro"):
        return None, "slime's swepro grader needs files of the trainer's host; this release does not run it."
    if command := metadata.text("eval_cmd", default=""):
        return ScriptGrader(command=command), ""
    if script := remote.text("f2p_script", default=""):
        return F2pScriptGrader(script=script), ""
    if remote.fields.keys() & {"test_patch", "FAIL_TO_PASS"}:
        return None, "slime's swebench protocol is not graded by this release; import the SWE-bench row itself."
    return None, "The row's metadata holds none of swepro, eval_cmd and remote_env_info.f2p_script."


def _first(metadata: SourceRow, remote: SourceRow, key: str) -> str:
    return metadata.text(key, default="") or remote.text(key, default="")


def _pre_commands(source: SourceRow) -> tuple[str, ...]:
    """One script, so that a `cd` or `export` counts for the commands after it, ended by the first that fails."""
    value = source.fields.get("pre_commands")
    if isinstance(value, str):
        commands: Sequence[str] = value.replace("\\n", "\n").split("\n")
    else:
        commands = source.names("pre_commands")
    script = "\n".join(command for command in commands if command.strip())
    return (f"set -e\n{script}",) if script else ()


IMPORTER = SlimeImporter()
