"""The common record of a task. The importer of each data set fills it, so grading has no branch per data set."""

import hashlib
import json
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from sandbox_server.catalogue import git_address
from sandbox_server.catalogue.localization.truth import LocalizationTask
from sandbox_server.catalogue.services import PART, Condition, Health, ImageBuild, McpServer, Service
from sandbox_server.catalogue.steps import Step


class _Record(BaseModel):
    model_config = PART


class SwebenchGrader(_Record):
    """Graded by the swebench library: its script, its parser, its verdict."""

    kind: Literal["swebench"] = "swebench"
    eval_script: str
    """The benchmark's script: set-up before its markers, tests between them."""
    log_parser: str
    """Name in swebench's PARSER_REGISTRY."""
    eval_type: Literal["pass_and_fail", "fail_only"] = "pass_and_fail"
    new_test_files: tuple[str, ...] = ()
    """Paths that the test patch creates; they are removed from the tree before the script runs."""


class ScriptGrader(_Record):
    """Resolved if `command` exits with 0 in the workdir; f2p_total is 1."""

    kind: Literal["script"] = "script"
    command: str
    """Shell text, run by bash in the workdir after the instance's activation."""


class F2pScriptGrader(_Record):
    """A Python file that ends in `sys.exit(pytest.main(...))`; resolved if it exits with 0."""

    kind: Literal["f2p_script"] = "f2p_script"
    script: str


class SweproGrader(_Record):
    """Graded as SWE-bench Pro does: a script runs the tests, a parser lists the passed ones.

    Resolved if all tests in `fail_to_pass` and `pass_to_pass` passed; a skipped or missing one has not.
    """

    kind: Literal["swepro"] = "swepro"
    run_script: str
    """Bash; its one argument is `selected_test_files`, joined by commas."""
    parser_script: str
    """Python 3; arguments: files with the tests' stdout and stderr, file to write `{"tests": [{"name", "status"}]}`
    to."""
    selected_test_files: tuple[str, ...] = ()
    restore_tests: str = ""
    """Shell text that checks the tests out of a later commit; run once in the task image. Gradings place these tests
    over the patch. A setup command's last line with the same text is left out, so that sessions do not see the
    tests."""


class LocalizationGrader(_Record):
    """Scored by the instance's `localization`, from the policy's answer; needs no patch and no container."""

    kind: Literal["localization"] = "localization"


class Collect(_Record):
    """A command that runs once the agent is done; its failure is ignored."""

    command: str
    timeout_s: float = 60.0
    service: str = ""
    """The service in whose container it runs, after the agent's container was stopped; "": the agent's."""
    user: str = ""
    """Name or number; "": root, or in a service the user of its container."""


class Artifact(_Record):
    """A file or folder of a service that is given to the tests."""

    service: str
    path: str
    """Absolute; where it is in the service, and where the tests find it."""


class HarborGrader(_Record):
    """Graded as Harbor does: `tests/test.sh` writes a reward; resolved if that is at least 1.0.

    The tests run in a fresh container, which gets nothing of the agent's container but `carried`.
    """

    kind: Literal["harbor"] = "harbor"
    tests: str
    """The task's `tests` folder: a gzipped tar archive, in base64; "" if the verifier's image has them."""
    carried: tuple[str, ...]
    """Absolute paths of files and folders whose changes are the agent's work."""
    images: tuple[str, ...] = ()
    """Candidate images of the verifier; empty: those of the sandbox."""
    build: ImageBuild | None = None
    """Builds the first of `images`."""
    workdir: str = ""
    """Folder in which the tests start; "": the sandbox's."""
    user: str = ""
    """Name or number of the user who runs the tests; "": root."""
    env: dict[str, str] = {}
    """Environment of the tests."""
    collect: tuple[Collect, ...] = ()
    """Commands that write running state to files, before the files are taken."""
    artifacts: tuple[Artifact, ...] = ()
    """Files of the sandbox's services that the tests get, in addition to `carried`."""
    network: Literal["none", "bridge"] = "none"
    """Network of the tests."""
    allowed: tuple[str, ...] | None = None
    """With a network: the hosts, `*.domain`s and address ranges that the tests may reach; None: all."""
    services: bool = True
    """The sandbox's services run beside the tests too, each in a fresh container."""
    solution: str = ""
    """The task's `solution` folder, as `tests`; "" for none. Never leaves the server; used by `instances verify`."""
    solution_env: dict[str, str] = {}


class R2eGrader(_Record):
    """Graded as R2E-Gym does: the image's hidden script runs its hidden tests, which must end as expected."""

    kind: Literal["r2e"] = "r2e"
    expected: dict[str, str]
    """Test -> PASSED, FAILED or ERROR; a missing or additional test is as wrong as another status."""


GraderSpec = Annotated[
    SwebenchGrader | ScriptGrader | F2pScriptGrader | SweproGrader | LocalizationGrader | HarborGrader | R2eGrader,
    Field(discriminator="kind"),
]


class GitSource(_Record):
    """A repository at one commit, put into the sandbox; exactly one of `repo`, `url` and `path` is set."""

    repo: str = ""
    """owner/name; SANDBOX_REPOSITORY_URL turns it into an address."""
    url: str = ""
    """https, http or git URL, as SANDBOX_REPOSITORY_PROTOCOLS allows; without credentials."""
    path: str = ""
    """A repository on the sandbox host, in one of SANDBOX_REPOSITORY_FOLDERS."""
    commit: str = ""
    """Full id of the base commit; "" is the server's HEAD at this node's first fetch."""
    patch: str = ""
    """Applied to the base commit as part of it, so that no diff shows it; for data whose patch adds the bug
    (SWE-smith)."""
    history: bool = False
    """Whether the agent sees commits before the base, which make the image larger; not possible with a `patch`."""

    @field_validator("commit")
    @classmethod
    def _commit(cls, value: str) -> str:
        return git_address.checked_commit(value)

    @model_validator(mode="after")
    def _one_address(self) -> Self:
        if [self.repo, self.url, self.path].count("") != 2:
            raise ValueError("exactly one of repo, url and path must name the repository")
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
        """A name made of all fields, for image names and the nodes' image reports."""
        said = json.dumps([self.repo, self.url, self.path, self.commit, self.patch, self.history])
        return f"git:{hashlib.sha256(said.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"

    def __str__(self) -> str:
        return f"{self.repo or self.url or self.path} at {self.commit or 'HEAD'}"


class SandboxSpec(_Record):
    """The container of the task."""

    images: tuple[str, ...] = ()
    """Candidate image names, preferred first; empty (only with a `source`): SANDBOX_SEARCH_IMAGE."""
    build: ImageBuild | None = None
    """Builds the first of `images` where it is missing."""
    source: GitSource | None = None
    """Repository to put into the image's `workdir`, which must be empty or missing; None: the image has the
    repository."""
    workdir: str = "/testbed"
    """Folder of the repository in the image."""
    user: str = ""
    """Name or number of the agent's user, who has the shell, and commands and edits that name no user; "": root. No
    checkpoints are made of sessions with another user than root."""
    env: dict[str, str] = {}
    activate: str = ""
    """Shell text run when a shell starts; "": activate conda env `testbed` if the image has it."""
    network: Literal["none", "bridge"] = "none"
    allowed: tuple[str, ...] | None = None
    """With a network: the hosts, `*.domain`s and address ranges that the sandbox may reach, of those that
    SANDBOX_BOX_EGRESS allows; None: all of these."""
    setup_commands: tuple[str, ...] = ()
    """Run once as root in the workdir, in the image that sessions and gradings start from."""
    hidden_paths: tuple[str, ...] = ()
    """Removed for the agent, present in gradings."""
    services: tuple[Service, ...] = ()
    """Containers beside it, in the order of their starts."""
    awaits: dict[str, Condition] = {}
    """Service -> condition that must hold before the task's own container starts. In any case each service runs by
    then, and is healthy if it has a health check."""
    mcp_servers: tuple[McpServer, ...] = ()
    """Only reported, by GET /v1/instances/{id}; whoever runs the agent configures them."""
    skills_dir: str = ""
    """Folder in the image with skills for an agent; only reported, as `mcp_servers`."""
    health: Health | None = None
    """Succeeds in the task's own container before a session or a grading begins there."""
    memory_mb: int | None = None
    cpus: float | None = None
    pids: int | None = None
    disk_mb: int | None = None

    @property
    def image_keys(self) -> tuple[str, ...]:
        """Names under which nodes report to each other that they have the task's image."""
        return (self.source.name,) if self.source else self.images


class CodeTask(_Record):
    """For the dialect `code`, where an action's `content` is source text."""

    path: str
    """File to write, relative to the workdir."""
    test_command: str
    """Shell text run in the workdir after writing."""


class TaskInstance(_Record):
    """A task: repository at a base commit, problem statement, image, grading data."""

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
    """Dialect of the task's policy; None: SANDBOX_DIALECT."""
    profile: str | None = None
    """Format of observations; None: the dialect's own."""
    code: CodeTask | None = None
    grader: GraderSpec | None = None
    """None: the instance cannot be graded."""
    localization: LocalizationTask | None = None
    """Ground truth of a code search task; scored if the grader is `localization`."""
    ungradable_because: str = ""
    step: Step | None = None
    """Which step of its task it is; None: the task has no steps."""
    test_patch: str = ""
    files: dict[str, str] = {}
    """Files placed only in grading containers: absolute path, or relative to the workdir -> text."""
    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()
    eval_timeout_s: float = 1800.0
    gold_patch: str = ""
    """Never leaves the server; used by `instances verify`."""
    row_sha256: str = ""
    """SHA-256 of the imported row."""
    conversion: str = ""
    """Library and version that converted the row; "" if it needed no conversion."""

    @model_validator(mode="after")
    def _localizes_with_a_truth(self) -> "TaskInstance":
        if self.localization is None and isinstance(self.grader, LocalizationGrader):
            raise ValueError("the grader is localization, but localization is not set")
        return self

    @property
    def localizes(self) -> bool:
        """Whether it is scored by the policy's answer, so that no patch is taken."""
        return isinstance(self.grader, LocalizationGrader)

    @property
    def carried(self) -> tuple[str, ...]:
        """Paths whose changed files are the agent's work; (): its work is a diff of the repository in `workdir`.

        The next step of its task begins with all of them, a grading only with those in `placed`.
        """
        carried = self.grader.carried if isinstance(self.grader, HarborGrader) else ()
        if self.step is None:
            return carried
        roots = (*carried, *self.step.kept)
        return tuple(root for root in roots if not any(root.startswith(f"{other}/") for other in roots))

    @property
    def placed(self) -> tuple[str, ...]:
        """Paths that a grading writes of what was taken from a session: of `carried`, and artifacts of services."""
        if not isinstance(self.grader, HarborGrader):
            return ()
        return (*self.grader.carried, *(artifact.path for artifact in self.grader.artifacts))

    @property
    def instance_hash(self) -> int:
        """int(md5(instance_id)) mod 2^63: the name that veRL uses."""
        return instance_hash(self.instance_id)

    @property
    def workspace(self) -> str:
        """`/workspace/<repo>__<version>`, each `/` as `__`; an integer version gains `.0`. Source: OpenHands 0.17."""
        return self._workspace_of(f"{self.version}.0" if self.version.isdigit() else self.version)

    @property
    def workspace_aliases(self) -> tuple[str, ...]:
        """Other names of that folder: trainers append `.0` only if the version is a number in their row."""
        return (self._workspace_of(self.version),) if self.version.isdigit() else ()

    def _workspace_of(self, version: str) -> str:
        return "/workspace/" + f"{self.repo}__{version}".replace("/", "__")


def instance_hash(instance_id: str) -> int:
    """int(md5(instance_id)) mod 2^63, as veRL's string_to_hash_tensor."""
    return int(hashlib.md5(instance_id.encode(), usedforsecurity=False).hexdigest(), 16) % 2**63
