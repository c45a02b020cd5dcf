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
        where = f"step {section.name!r}"
        if f"{own}/{INSTRUCTION}" not in content:
            raise ValueError(f"{own}/{INSTRUCTION} is missing")
        config_of_step = config.of_step(section)
        if config_of_step.verifier.separate:
            raise ValueError(f"not supported: {where} with a verifier of its own (environment_mode = 'separate')")
        tests = Folder(content["tests"]).under(Folder(content[f"{own}/tests"]))
        if tests.text("test.sh") is None:
            raise ValueError(f"{own}/tests/test.sh is missing, and tests/test.sh too")
        replaced = {
            INSTRUCTION: content[f"{own}/{INSTRUCTION}"],
            "tests": tests.packed(),
            "solution": content[f"{own}/solution"] or content["solution"],
        }
        yield StepOfTask(section, config_of_step, {**content, **replaced}, content[f"{own}/workdir"])
