"""Every setting of the server, read once from SANDBOX_* variables, else SANDBOX_ENV_FILE, else SANDBOX_SECRETS_DIR.

Only `app` and `cli` import this; all other packages get plain values.
"""

import os
import socket
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from sandbox_server.settings.agents import AgentSettings
from sandbox_server.settings.boxes import BoxSettings
from sandbox_server.settings.gradings import GradingSettings
from sandbox_server.settings.load import LoadSettings
from sandbox_server.settings.repositories import RepositorySettings
from sandbox_server.settings.sandboxes import SandboxSettings
from sandbox_server.settings.server import ServerSettings

GROUPS: tuple[type[BaseModel], ...] = (
    ServerSettings,
    SandboxSettings,
    BoxSettings,
    AgentSettings,
    RepositorySettings,
    LoadSettings,
    GradingSettings,
)
"""In the order of docs/settings.md."""


REMOVED = {
    "SANDBOX_FORWARD_TIMEOUT_S": "it follows from SANDBOX_START_TIMEOUT_S and the other limits on answering",
    "SANDBOX_REPOSITORY_PAUSE_S": "the pause is 2 s, then twice as long; SANDBOX_REPOSITORY_ATTEMPTS says how often",
}
"""Variables that were settings once -> why they have no effect any more."""


# The bases stand in reverse, because pydantic collects fields from the last base to the first.
class Settings(
    GradingSettings,
    LoadSettings,
    RepositorySettings,
    AgentSettings,
    BoxSettings,
    SandboxSettings,
    ServerSettings,
    BaseSettings,
):
    """Each field is the variable SANDBOX_<NAME>; its docstring is its entry in docs/settings.md."""

    model_config = SettingsConfigDict(env_prefix="SANDBOX_", frozen=True, extra="ignore", use_attribute_docstrings=True)

    @field_validator("confirm")
    @classmethod
    def _share(cls, value: float | str) -> float | str:
        if isinstance(value, float) and not 0 < value <= 1:
            raise ValueError("neither resolved nor off, nor a number above 0 and up to 1")
        return value

    @field_validator(
        "api_keys",
        "view_keys",
        "pinned_images",
        "box_image_keys",
        "box_images",
        "box_raw_images",
        "box_sudo_images",
        "box_egress",
        "box_origins",
        "agent_origins",
        "repository_folders",
        "repository_protocols",
        mode="before",
    )
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("redis_url", "node_url")
    @classmethod
    def _url(cls, value: str | None, info: ValidationInfo) -> str | None:
        schemes = ("redis", "rediss", "unix") if info.field_name == "redis_url" else ("http", "https")
        if value and value.partition("://")[0] not in schemes:
            raise ValueError(f"a URL begins with {', '.join(f'{scheme}://' for scheme in schemes)}")
        if value and info.field_name == "node_url":
            try:
                parts = urlsplit(value)
                named = parts.hostname and parts.port != 0 and " " not in parts.netloc
            except ValueError:  # brackets without their pair, or a port that is no number
                named = False
            if not named:
                raise ValueError("other nodes cannot reach it: it is http://HOST:PORT")
        return value

    @model_validator(mode="after")
    def _marks_in_order(self) -> "Settings":
        if not self.disk_low_pct < self.disk_high_pct < self.disk_refuse_pct:
            raise ValueError("SANDBOX_DISK_LOW_PCT < SANDBOX_DISK_HIGH_PCT < SANDBOX_DISK_REFUSE_PCT does not hold")
        return self

    @property
    def own_url(self) -> str:
        """Effective SANDBOX_NODE_URL."""
        named = socket.gethostname() if self.host in ("0.0.0.0", "::", "") else self.host
        return (self.node_url or f"http://{named}:{self.port}").rstrip("/")

    @property
    def forward_timeout_s(self) -> float:
        """Limit on another node's answer, beyond its own on starts, rewards and actions; a longer end is sent again."""
        return 1.4 * max(self.start_timeout_s, self.reward_wait_s, self.command_timeout_s + self.action_wait_s)

    @property
    def repositories(self) -> Path:
        """Effective SANDBOX_REPOSITORIES_DIR."""
        return self.repositories_dir or self.data_dir / "repositories"

    @property
    def boots(self) -> int:
        """Effective SANDBOX_BOOT_CONCURRENCY. On two CPUs, 16 starts took the same time with 3 or 8 at a time."""
        return self.boot_concurrency or max(4, 2 * (os.cpu_count() or 1))

    @property
    def gradings(self) -> int:
        """Effective SANDBOX_GRADE_CONCURRENCY. It leaves CPUs for live sessions. On two CPUs, 1 to 4 were as fast."""
        return self.grade_concurrency or max(2, (os.cpu_count() or 1) * 3 // 4)

    @property
    def certifications(self) -> int:
        """Effective SANDBOX_CERTIFY_CONCURRENCY."""
        return self.certify_concurrency or max(1, self.gradings // 2)

    @property
    def database(self) -> str:
        """Effective SQLAlchemy URL."""
        if self.database_url is None or self.database_password is None:
            return self.database_url or f"sqlite:///{self.data_dir / 'catalogue.sqlite3'}"
        parts = urlsplit(self.database_url)
        user, _, host = parts.netloc.rpartition("@")
        password = quote(self.database_password.get_secret_value(), safe="")
        return parts._replace(netloc=f"{user.partition(':')[0]}:{password}@{host}").geturl()


@lru_cache(maxsize=1)
def load() -> Settings:
    """The settings of this process."""
    return Settings(
        _env_file=os.environ.get("SANDBOX_ENV_FILE"), _secrets_dir=os.environ.get("SANDBOX_SECRETS_DIR") or None
    )
