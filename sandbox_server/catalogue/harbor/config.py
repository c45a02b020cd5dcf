"""task.toml as Harbor 0.26 reads it. Keys that it does not know are ignored, as there."""

import ipaddress
import re
import tomllib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

_TEMPLATE = re.compile(r"\$\{(?P<name>[^}:]+)(?P<default>:-(?P<text>.*))?\}")
_UNITS = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}
_HTTP = "streamable-http"
_ROOT = {None, "root", 0, "0"}
_HOST = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _host(said: str) -> str:
    host = said.strip().lower().rstrip(".")
    try:
        return str(ipaddress.ip_network(host)) if "/" in host else str(ipaddress.ip_address(host))
    except ValueError:
        if _HOST.fullmatch(host) and not re.fullmatch(r"(\*\.)?[0-9.]+", host):
            return host
    raise ValueError(f"{said[:100]!r} is no host name, *.domain, address or range of addresses")


_Hosts = list[Annotated[str, AfterValidator(_host)]] | None
_Mode = Literal["public", "no-network", "allowlist"] | None


@dataclass(frozen=True, slots=True)
class Network:
    """What a phase of the task may reach."""

    kind: Literal["none", "bridge"]
    allowed: tuple[str, ...] | None = None
    """Hosts, `*.domain`s and ranges of addresses; None: all."""

    @classmethod
    def of(cls, mode: str, hosts: list[str] | None) -> "Network":
        """An empty allow list is no network."""
        if mode == "public":
            return cls("bridge")
        return cls("bridge", tuple(hosts)) if mode == "allowlist" and hosts else cls("none")


_Seconds = Annotated[float, Field(ge=0, le=86_400)]


class Healthcheck(_Section):
    """[environment.healthcheck]."""

    command: str
    interval_sec: _Seconds = 5.0
    timeout_sec: Annotated[float, Field(gt=0, le=86_400)] = 30.0
    start_period_sec: _Seconds = 0.0
    start_interval_sec: _Seconds = 5.0
    retries: Annotated[int, Field(ge=1)] = 3


class McpServer(_Section):
    """[[environment.mcp_servers]]."""

    name: str
    transport: Annotated[
        Literal["stdio", "sse", "streamable-http"], BeforeValidator(lambda said: _HTTP if said == "http" else said)
    ] = "sse"
    url: str | None = None
    command: str | None = None
    args: list[str] = []
    headers: dict[str, str] = {}

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needed = "command" if self.transport == "stdio" else "url"
        if not getattr(self, needed):
            raise ValueError(f"{needed} is required for the transport {self.transport}")
        return self


class Environment(_Section):
    """[environment], [verifier.environment]."""

    build_timeout_sec: Annotated[float, Field(gt=0)] = 600.0
    docker_image: str | None = None
    os: Annotated[str, BeforeValidator(_lower)] = "linux"
    cpus: Annotated[float, Field(gt=0)] | None = None
    memory_mb: Annotated[int, Field(gt=0)] | None = None
    storage_mb: Annotated[int, Field(gt=0)] | None = None
    memory: str | None = None
    storage: str | None = None
    gpus: int | None = None
    tpu: Any = None
    mcp_servers: list[McpServer] = []
    skills_dir: str | None = None
    env: dict[str, str] = {}
    healthcheck: Healthcheck | None = None
    workdir: str | None = None
    network_mode: _Mode = None
    allowed_hosts: _Hosts = None
    allow_internet: bool | None = None

    @property
    def network(self) -> Network:
        """What it may reach, where no phase says otherwise."""
        if self.network_mode is None and self.allow_internet is not None:
            return Network("bridge" if self.allow_internet else "none")
        return Network.of(self.network_mode or "public", self.allowed_hosts)

    @property
    def size(self) -> dict[str, Any]:
        """Limits that it sets, as fields of a SandboxSpec. Raises ValueError."""
        named = {
            "cpus": self.cpus,
            "memory_mb": self.memory_mb or _mb(self.memory),
            "disk_mb": self.storage_mb or _mb(self.storage),
        }
        return {name: value for name, value in named.items() if value is not None}

    def unsupported(self) -> list[str]:
        """Unsupported requests of this section."""
        found = {
            f"os = {self.os!r}": self.os != "linux",
            "gpus": bool(self.gpus),
            "tpu": self.tpu is not None,
        }
        return [what for what, asked in found.items() if asked]


class _Phase(_Section):
    network_mode: _Mode = None
    allowed_hosts: _Hosts = None

    @property
    def network(self) -> Network | None:
        """What it may reach; None: as its environment."""
        return Network.of(self.network_mode, self.allowed_hosts) if self.network_mode else None


class Agent(_Phase):
    """[agent]."""

    timeout_sec: float | None = None
    user: str | int | None = None


class Collect(_Section):
    """[[verifier.collect]]."""

    command: str
    service: str = "main"
    timeout_sec: Annotated[float, Field(gt=0)] = 60.0
    user: str | int | None = None


class Verifier(_Phase):
    """[verifier]."""

    timeout_sec: Annotated[float, Field(gt=0)] = 600.0
    env: dict[str, str] = {}
    user: str | int | None = None
    environment_mode: str | None = None
    environment: Environment | None = None
    collect: list[Collect] = []

    @property
    def separate(self) -> bool:
        """Graded from declared artifacts alone."""
        return (self.environment_mode or ("separate" if self.environment else "shared")) == "separate"


class Solution(_Section):
    """[solution]."""

    env: dict[str, str] = {}


class Package(_Section):
    """[task]."""

    name: str
    version: str | None = None


class Artifact(_Section):
    """An entry of `artifacts`."""

    source: str
    service: str | None = None

    @field_validator("source")
    @classmethod
    def _stays(cls, value: str) -> str:
        if ".." in value.split("/"):
            raise ValueError(f"{value!r} has a part '..'")
        return value


class StepSection(_Section):
    """An entry of [[steps]]."""

    name: str
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    min_reward: float | dict[str, float] | None = None
    healthcheck: Healthcheck | None = None
    artifacts: list[str | Artifact] = []

    @field_validator("name")
    @classmethod
    def _one_folder(cls, value: str) -> str:
        if value in (".", "..") or "/" in value or "\\" in value or not value.strip() or not value.isprintable():
            raise ValueError(f"{value[:100]!r} cannot be the name of a folder")
        return value


class Config(_Section):
    """The whole file."""

    task: Package | None = None
    environment: Environment = Environment()
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    solution: Solution = Solution()
    steps: list[StepSection] = []
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    artifacts: list[str | Artifact] = []

    @field_validator("steps")
    @classmethod
    def _different(cls, steps: list[StepSection]) -> list[StepSection]:
        if len({unicodedata.normalize("NFC", step.name).casefold() for step in steps}) < len(steps):
            raise ValueError("two steps have the same name")
        return steps

    @classmethod
    def read(cls, text: str) -> "Config":
        """Raises ValueError, with a reason in one line."""
        try:
            return cls.model_validate(tomllib.loads(text))
        except ValidationError as error:
            fault = error.errors()[0]
            raise ValueError(f"task.toml: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"task.toml: {error}") from None

    def unsupported(self) -> list[str]:
        """Unsupported requests of the task, each as its key."""
        verifier = self.verifier.environment.unsupported() if self.verifier.environment else []
        return [
            *(f"[environment] {what}" for what in self.environment.unsupported()),
            *(f"[verifier.environment] {what}" for what in verifier),
        ]

    def of_step(self, step: StepSection) -> "Config":
        """The configuration of one step: the step's own values take precedence over the task's."""
        verifier = _over(self.verifier, step.verifier)
        if step.verifier.environment is not None and step.verifier.environment_mode is None:
            verifier = verifier.model_copy(update={"environment_mode": "separate"})
        more = {
            "env": {**self.verifier.env, **step.verifier.env},
            "collect": [*self.verifier.collect, *step.verifier.collect],
        }
        parts = {
            "agent": _over(self.agent, step.agent),
            "verifier": verifier.model_copy(update=more),
            "artifacts": [*self.artifacts, *step.artifacts],
            "steps": [],
        }
        return self.model_copy(update=parts)

    def with_verifier(self, docker_image: str | None) -> "Config":
        """The configuration with this image for a verifier that has an environment of its own."""
        own = self.verifier.environment
        if own is None:
            return self
        own = own.model_copy(update={"docker_image": docker_image})
        return self.model_copy(update={"verifier": self.verifier.model_copy(update={"environment": own})})

    @property
    def services(self) -> set[str]:
        """Services that `artifacts` and [[verifier.collect]] name."""
        collected = {one.service for one in self.verifier.collect}
        return collected | {entry.service or "" for entry in self.sources(other=True)}

    def sources(self, *, other: bool = False) -> list[Artifact]:
        """Artifacts of the agent's container, or those of `other` services."""
        entries = [Artifact(source=entry) if isinstance(entry, str) else entry for entry in self.artifacts]
        return [entry for entry in entries if (entry.service not in (None, "main")) is other]


_P = TypeVar("_P", bound=_Phase)


def _over(task: _P, step: _P) -> _P:
    said = {name: getattr(step, name) for name in step.model_fields_set}
    said = {name: value for name, value in said.items() if value is not None}
    if step.network_mode:  # the hosts go with the mode
        said["allowed_hosts"] = step.allowed_hosts
    return task.model_copy(update=said)


def user_name(said: str | int | None) -> str:
    """Name or number of a user; "": root."""
    return "" if said in _ROOT else str(said)


def resolved(env: Mapping[str, str], where: str) -> dict[str, str]:
    """Environment variables with their defaults. Raises ValueError: one needs a value from the trainer's host."""
    found: dict[str, str] = {}
    for name, value in env.items():
        template = _TEMPLATE.fullmatch(value)
        if template is not None and template["default"] is None:
            raise ValueError(f"{where} takes {name} from the host's ${template['name']}, which no server has")
        found[name] = value if template is None else template["text"]
    return found


def _mb(said: str | None) -> int | None:
    if said is None:
        return None
    text = said.strip().upper()
    try:
        return int(float(text[:-1]) * _UNITS[text[-1:]])
    except (KeyError, ValueError):
        raise ValueError(f"task.toml: {said!r} is not a size such as 512M or 2G") from None
