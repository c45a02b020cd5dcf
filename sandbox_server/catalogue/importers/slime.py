"""slime's rows: {prompt, label, metadata}. Graders in slime's own order: swepro, eval_cmd, f2p_script, swebench.

slime picks its protocol by an environment variable; here a row is of `swebench` when it has a test patch and no other
grader. As in slime, `before_repo_set_cmd` and `pre_commands` shape the tree of both containers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sandbox_server.catalogue.benchmark_rows import benchmark_instance, has_own_command, is_complete
from sandbox_server.catalogue.instance import (
    F2pScriptGrader,
    SandboxSpec,
    ScriptGrader,
    SweproGrader,
    TaskInstance,
)
from sandbox_server.catalogue.rows import Converted, OldRowConverter, SourceRow, Unconvertible
from sandbox_server.catalogue.swepro import swepro_grader

_TIMEOUT_S = 600.0  # SWE_EVAL_TIMEOUT_SEC
_LONGEST_LABEL = 255  # slime treats a longer one as an answer, not a name


class SlimeImporter:
    """Recognised by `metadata` with an image, or with one of slime's graders."""

    general = False

    def matches(self, row: Mapping[str, object]) -> bool:
        """See `Importer`."""
        return "metadata" in row and not row.keys().isdisjoint(("prompt", "label"))

    def convert(self, rows: Sequence[SourceRow], converter: OldRowConverter) -> Iterator[TaskInstance]:
        """See `Importer`; all rows of the benchmark's own kind go through the library at once."""
        tasks = [_Task(row) for row in rows]
        old = [task.benchmark_row() for task in tasks if task.is_benchmark]
        old = [row for row in old if not has_own_command(row) and not is_complete(row)]
        answers = {row.line: answer for row, answer in zip(old, converter.convert(old), strict=True)}
        complete = Unconvertible("")  # for rows that need no answer
        return (
            task.benchmark_instance(answers.get(task.row.line, complete)) if task.is_benchmark else task.instance()
            for task in tasks
        )


class _Task:
    """A row with its metadata: fields may be in `metadata`, in its `remote_env_info`, or in either."""

    def __init__(self, row: SourceRow) -> None:
        self.row = row
        self.metadata = replace(row, fields=row.mapping("metadata"))
        self.remote = replace(row, fields=self.metadata.mapping("remote_env_info"))
        self.swepro = replace(row, fields=self.metadata.mapping("swepro"))

    @property
    def is_benchmark(self) -> bool:
        """Its protocol is `swebench`."""
        return bool(self.remote.text("test_patch", default="")) and not (
            self.swepro.fields or self.metadata.fields.get("eval_cmd") or self.remote.fields.get("f2p_script")
        )

    def instance(self) -> TaskInstance:
        """The instance of a row of slime's own protocol, `scaleswe`."""
        required = self.swepro if self.swepro.fields else self.remote
        grader, because = self._grader(required)
        return TaskInstance(
            instance_id=self._instance_id(),
            dataset="slime",
            repo=self._first("repo"),
            version=self._first("version"),
            base_commit=self._first("base_commit"),
            problem_statement=self._problem(),
            sandbox=SandboxSpec(
                images=(self._image(),),
                workdir=self._first("workdir") or "/testbed",
                setup_commands=(*self._before(), *(_pre_commands(self.metadata) or _pre_commands(self.remote))),
            ),
            dialect=self.metadata.text("dialect", default="") or None,
            grader=grader,
            ungradable_because=because,
            fail_to_pass=required.names("fail_to_pass", "FAIL_TO_PASS"),
            pass_to_pass=required.names("pass_to_pass", "PASS_TO_PASS"),
            eval_timeout_s=self.metadata.number("eval_timeout_s", default=_TIMEOUT_S),
            gold_patch=self._first("patch"),
            row_sha256=self.row.sha256,
        )

    def benchmark_row(self) -> SourceRow:
        """`remote_env_info` as the benchmark's own row."""
        fields = {
            **self.remote.fields,
            "instance_id": self._instance_id(),
            "image": self._image(),
            "problem_statement": self._problem(),
            "eval_timeout_s": self.metadata.number("eval_timeout_s", default=_TIMEOUT_S),
            "dialect": self.metadata.text("dialect", default="") or None,
        }
        return replace(self.row, fields=fields)

    def benchmark_instance(self, otherwise: Converted | Unconvertible) -> TaskInstance:
        """The instance of a row of the protocol `swebench`, graded by that library."""
        made = benchmark_instance(self.benchmark_row(), dataset="slime", images=(), otherwise=otherwise)
        return made.model_copy(update={"row_sha256": self.row.sha256})

    def _grader(self, required: SourceRow) -> tuple[ScriptGrader | F2pScriptGrader | SweproGrader | None, str]:
        if self.swepro.fields:
            if not (required.names("fail_to_pass", "FAIL_TO_PASS") or required.names("pass_to_pass", "PASS_TO_PASS")):
                return None, "Its swepro names no test in fail_to_pass and pass_to_pass, so slime gives 0.0 always."
            return (
                swepro_grader(
                    run_script=self.swepro.file_text(self.swepro.text("run_script_path")),
                    parser_script=self.swepro.file_text(self.swepro.text("parser_script_path")),
                    selected_test_files=self.swepro.names("selected_test_files"),
                    before_repo_set_cmd=self.swepro.text("before_repo_set_cmd", default=""),
                ),
                "",
            )
        if command := self.metadata.text("eval_cmd", default=""):
            return ScriptGrader(command=command), ""
        if script := self.remote.text("f2p_script", default=""):
            return F2pScriptGrader(script=script), ""
        return None, "The row's metadata holds none of swepro, eval_cmd, remote_env_info.f2p_script and .test_patch."

    def _instance_id(self) -> str:
        label = self.row.fields.get("label")
        named = label if isinstance(label, str) and len(label) <= _LONGEST_LABEL else ""
        if not (found := self._first("instance_id") or named):
            raise self.row.rejected("neither metadata.instance_id nor label names the instance")
        return found

    def _image(self) -> str:
        return self._first("image") or self.remote.text("image_url", default="") or self.metadata.text("image")

    def _problem(self) -> str:
        return self._first("problem_statement") or _user_text(self.row.fields.get("prompt"))

    def _before(self) -> tuple[str, ...]:
        command = self.swepro.text("before_repo_set_cmd", default="").strip()
        return (f"set -e\n{command}",) if command else ()

    def _first(self, key: str) -> str:
        return self.metadata.text(key, default="") or self.remote.text(key, default="")


def _user_text(prompt: object) -> str:
    """A prompt's text: itself, or of a chat the first turn of the user, whose content may be a list of parts."""
    if isinstance(prompt, list):
        turns = (turn for turn in prompt if isinstance(turn, dict) and turn.get("role") == "user")
        prompt = next(turns, {}).get("content")
        if isinstance(prompt, list):
            parts = (part.get("text") for part in prompt if isinstance(part, dict))
            prompt = "\n".join(part for part in parts if isinstance(part, str))
    return prompt if isinstance(prompt, str) else ""


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
