"""A task of several steps, step by step: each has its own instruction, tests and files for the work directory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sandbox_server.catalogue.harbor.archives import Folder
from sandbox_server.catalogue.harbor.config import Config, StepSection

INSTRUCTION = "instruction.md"
FOLDERS = ("tests", "solution", "workdir")


@dataclass(frozen=True, slots=True)
class StepOfTask:
    """A step as the folder of a task without steps."""

    section: StepSection
    config: Config
    content: Mapping[str, str]
    """Texts and archives by name, as `folders` reads them."""
    uploads: str
    """Its `workdir` folder, packed; "" for none."""


def steps_of(config: Config, content: Mapping[str, str]) -> Iterator[StepOfTask]:
    """Each step in turn. Raises ValueError: one is incomplete, or asks for what is not supported."""
    for section in config.steps:
        own = f"steps/{section.name}"
        if f"{own}/{INSTRUCTION}" not in content:
            raise ValueError(f"{own}/{INSTRUCTION} is missing")
        of_step = config.of_step(section)
        if of_step.verifier.separate and any(
            name.startswith(f"{own}/tests/") and "compose" in name for name in content
        ):
            raise ValueError(f"not supported: a compose file in {own}/tests (several containers)")
        image = _verifier(config, section, content) if of_step.verifier.separate else None
        found = {
            **content,
            INSTRUCTION: content[f"{own}/{INSTRUCTION}"],
            "solution": content[f"{own}/solution"] or content["solution"],
        }
        found.pop("tests/Dockerfile", None)
        if image is None:
            tests = Folder(content["tests"]).under(Folder(content[f"{own}/tests"]))
            if tests.text("test.sh") is None:
                raise ValueError(f"{own}/tests/test.sh is missing, and tests/test.sh too")
            found["tests"] = tests.packed()
        elif image.name:
            of_step = of_step.with_verifier(image.name)
        else:
            found |= {"tests": content[image.folder], "tests/Dockerfile": content[f"{image.folder}/Dockerfile"]}
            of_step = of_step.with_verifier(None)
        yield StepOfTask(section, of_step, found, content[f"{own}/workdir"])


@dataclass(frozen=True, slots=True)
class _Image:
    """An image with the tests in it: a `name`, or the Dockerfile in `folder`."""

    folder: str
    name: str


def _verifier(config: Config, section: StepSection, content: Mapping[str, str]) -> _Image | None:
    """The image of a separate verifier: the step's, else the task's; None: that of the task itself, without tests."""
    own = f"steps/{section.name}/tests"
    for environment, folder in ((section.verifier.environment, own), (config.verifier.environment, "tests")):
        name = environment.docker_image or "" if environment else ""
        if name or f"{folder}/Dockerfile" in content:
            return _Image(folder, name)
    return None
