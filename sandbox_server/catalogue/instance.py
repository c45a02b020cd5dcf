"""The neutral record of a task: every data set's importer fills it, so that grading has no branch per data set."""

import hashlib
import json
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from sandbox_server.catalogue import git_address
from sandbox_server.catalogue.localization.truth import LocalizationTask


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class SwebenchGrader(_Record):
    """Graded by the swebench library: its script, its parser, its verdict."""

    kind: Literal["swebench"] = "swebench"
    eval_script: str
    """The benchmark's script: what stands before its markers is the set-up, between them the tests."""
    log_parser: str
    """Name in swebench's PARSER_REGISTRY."""
    eval_type: Literal["pass_and_fail", "fail_only"] = "pass_and_fail"
    new_test_files: tuple[str, ...] = ()
    """Paths that the test patch creates; removed from the tree before the script runs."""


class ScriptGrader(_Record):
    """Resolved when `command` exits 0 in the workdir; f2p_total is 1."""

    kind: Literal["script"] = "script"
    command: str
    """Shell text, run by bash in the workdir after the instance's activation."""


class F2pScriptGrader(_Record):
    """A Python file that ends in `sys.exit(pytest.main(...))`; resolved when it exits 0."""

    kind: Literal["f2p_script"] = "f2p_script"
    script: str


class SweproGrader(_Record):
    """As SWE-bench Pro grades: a script runs the tests, a parser names those that passed; each required one must have.

    Required are `fail_to_pass` and `pass_to_pass`; skipped or missing is not passed.
    """

    kind: Literal["swepro"] = "swepro"
    run_script: str
    """Bash; its one argument is `selected_test_files`, joined by commas."""
    parser_script: str
    """Python 3; arguments: stdout and stderr of the tests, where to write `{"tests": [{"name", "status"}]}`."""
    selected_test_files: tuple[str, ...] = ()
    restore_tests: str = ""
    """Shell text, run once in the task image: checks the tests out of a later commit. Gradings lay them over the patch;
    a last line of the setup commands that says the same is left out, so sessions do not see them."""


class LocalizationGrader(_Record):
    """Scored by the instance's `localization`: from what the policy answered, without patch or container."""

    kind: Literal["localization"] = "localization"


GraderSpec = Annotated[
    SwebenchGrader | ScriptGrader | F2pScriptGrader | SweproGrader | LocalizationGrader, Field(discriminator="kind")
]


class GitSource(_Record):
    """A repository at one commit, from which the sandbox's tree is made; exactly one of `repo`, `url` and `path`."""

    repo: str = ""
    """owner/name: SANDBOX_REPOSITORY_URL says where that lies."""
    url: str = ""
    """https, http or git, of SANDBOX_REPOSITORY_PROTOCOLS; without credentials."""
    path: str = ""
    """A repository on the sandbox host, in one of SANDBOX_REPOSITORY_FOLDERS."""
    commit: str = ""
    """Full id of the base commit; "" is the server's HEAD as it was when this node first fetched it."""
    patch: str = ""
    """Laid over the base and made part of it, so that no diff shows it: where a patch brings the bug (SWE-smith)."""
    history: bool = False
    """The agent finds the commits before the base too, which make its image larger; never with a `patch`."""

    @field_validator("commit")
    @classmethod
    def _commit(cls, value: str) -> str:
        return git_address.checked_commit(value)

    @model_validator(mode="after")
    def _one_address(self) -> Self:
        if [self.repo, self.url, self.path].count("") != 2:
            raise ValueError("exactly one of repo, url and path says where the repository lies")
        if self.repo:
            git_address.checked_repo(self.repo)
        elif self.url:
            git_address.checked_url(self.url)
        else:
            git_address.checked_path(self.path)
        if self.patch and self.history:
            raise ValueError("with a patch there is no history: the last commit would show the patch")
        return self

    @property
    def name(self) -> str:
        """Of all that it says, for the names of images and what nodes tell of them."""
        said = json.dumps([self.repo, self.url, self.path, self.commit, self.patch, self.history])
        return f"git:{hashlib.sha256(said.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"

    def __str__(self) -> str:
        return f"{self.repo or self.url or self.path} at {self.commit or 'HEAD'}"


class SandboxSpec(_Record):
    """The container the task lives in."""

    images: tuple[str, ...] = ()
    """Candidate names, the preferred first; none (with a `source` only): SANDBOX_SEARCH_IMAGE."""
    source: GitSource | None = None
    """The repository is put into the image's `workdir`, which is empty or missing there; None: the image has it."""
    workdir: str = "/testbed"
    """Where the repository lies in the image."""
    env: dict[str, str] = {}
    activate: str = ""
    """Shell text run once when a shell begins; "" means: conda env `testbed` where the image has it."""
    network: Literal["none", "bridge"] = "none"
    setup_commands: tuple[str, ...] = ()
    """Run as root in the workdir before anything else, once, in the image that sessions and gradings start from."""
    hidden_paths: tuple[str, ...] = ()
    """Removed for the agent only."""
    memory_mb: int | None = None
    cpus: float | None = None
    pids: int | None = None
    disk_mb: int | None = None

    @property
    def told_as(self) -> tuple[str, ...]:
        """Names by which nodes tell each other that they have its image."""
        return (self.source.name,) if self.source else self.images


class CodeTask(_Record):
    """For the dialect `code`: `content` is source text."""

    path: str
    """File to write, relative to the workdir."""
    test_command: str
    """Shell text run in the workdir after writing."""


class TaskInstance(_Record):
    """A task: repository at a base commit, problem, image, grading data."""

    instance_id: str = Field(min_length=1, max_length=400)
    dataset: str = ""
    repo: str
    version: str = ""
    base_commit: str = ""
    language: str = "python"
    problem_statement: str = ""
    hints: str = ""
    sandbox: SandboxSpec
    dialect: str | None = None
    """How this task's policy writes actions; None: SANDBOX_DIALECT."""
    profile: str | None = None
    """How observations read; None: the dialect's own."""
    code: CodeTask | None = None
    grader: GraderSpec | None = None
    """None: ungradable."""
    localization: LocalizationTask | None = None
    """What is to be found, where the task is one of code search; scored where the grader is `localization`."""
    ungradable_because: str = ""
    test_patch: str = ""
    files: dict[str, str] = {}
    """Placed in the grading container only: absolute path or relative to the workdir -> text."""
    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()
    eval_timeout_s: float = 1800.0
    gold_patch: str = ""
    """Never leaves the server; used by `instances verify`."""
    row_sha256: str = ""
    """Of the imported row."""
    conversion: str = ""
    """Library and version that converted the row, "" when it came complete."""

    @model_validator(mode="after")
    def _localizes_with_a_truth(self) -> "TaskInstance":
        if self.localization is None and isinstance(self.grader, LocalizationGrader):
            raise ValueError("the grader is localization, but localization is not set")
        return self

    @property
    def localizes(self) -> bool:
        """It is scored by what the policy answers: no patch is taken of it."""
        return isinstance(self.grader, LocalizationGrader)

    @property
    def instance_hash(self) -> int:
        """int(md5(instance_id)) mod 2^63: how veRL names the instance."""
        return instance_hash(self.instance_id)

    @property
    def workspace(self) -> str:
        """`/workspace/<repo>__<version>`, every `/` as `__`; an integer version gains `.0`. Source: OpenHands 0.17."""
        return self._workspace_of(f"{self.version}.0" if self.version.isdigit() else self.version)

    @property
    def workspace_aliases(self) -> tuple[str, ...]:
        """Other names of the same folder: a trainer adds `.0` only where its row has the version as a number."""
        return (self._workspace_of(self.version),) if self.version.isdigit() else ()

    def _workspace_of(self, version: str) -> str:
        return "/workspace/" + f"{self.repo}__{version}".replace("/", "__")


def instance_hash(instance_id: str) -> int:
    """int(md5(instance_id)) mod 2^63, as veRL's string_to_hash_tensor."""
    return int(hashlib.md5(instance_id.encode(), usedforsecurity=False).hexdigest(), 16) % 2**63
