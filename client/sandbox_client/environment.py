"""The drop-in's settings: environment variables, read at each use so that a Ray worker's own environment counts."""

from __future__ import annotations

import logging
import os

from sandbox_client.errors import SettingsError
from sandbox_client.hosts import parse_host
from sandbox_client.timeouts import Timeouts, connect_s, seconds

_LOGGER = logging.getLogger(__name__)


def base_urls() -> list[str]:
    """SANDBOX_URL: one base URL or several, comma-separated, with user and password if given.

    Raises:
        SettingsError: unset or invalid; also logged as an error, because veRL's reward manager swallows exceptions.
    """
    urls = [url.strip().rstrip("/") for url in os.environ.get("SANDBOX_URL", "").split(",") if url.strip()]
    try:
        if not urls:
            raise SettingsError("SANDBOX_URL is not set in this process; set it for the driver and for every worker")
        for url in urls:
            parse_host(url)
    except SettingsError as error:
        _LOGGER.error("%s", error.detail)
        raise
    return urls


def run() -> str:
    """SANDBOX_RUN: name of this trainer's run; runs share the service evenly. "": the API key's name."""
    return os.environ.get("SANDBOX_RUN", "").strip()


def run_lease_s() -> float:
    """SANDBOX_RUN_LEASE_S: the service ends the run's sessions if no process renews it for this long; 0.0: never."""
    return seconds("SANDBOX_RUN_LEASE_S", 0.0)


def end_run_at_start() -> bool:
    """SANDBOX_END_RUN_AT_START: first end the sessions that an earlier trainer of this run left behind."""
    return _switch("SANDBOX_END_RUN_AT_START", default=False)


def masked_reward() -> float:
    """SANDBOX_MASKED_REWARD: value of a masked reward, which says nothing about the policy; 0.0 by default."""
    value = os.environ.get("SANDBOX_MASKED_REWARD", "0.0")
    try:
        return float(value)
    except ValueError:
        raise SettingsError(f"SANDBOX_MASKED_REWARD is not a number: {value!r}") from None


def dead_sessions() -> bool:
    """SANDBOX_DEAD_SESSIONS: a start that finally fails gives a dead session (sid 0) instead of ending the batch."""
    return _switch("SANDBOX_DEAD_SESSIONS", default=False)


def chat_wrap() -> bool:
    """SANDBOX_CHAT_WRAP: wrap observations in a user turn of the Qwen chat format; not for revisions that do so."""
    return _switch("SANDBOX_CHAT_WRAP", default=False)


def prompts_file() -> str:
    """SANDBOX_PROMPTS_FILE: path of the trainer's original swedev_utils.py, if it is no longer at its own place."""
    return os.environ.get("SANDBOX_PROMPTS_FILE", "")


def check() -> None:
    """Raise SettingsError for invalid variables now instead of in the middle of a training step."""
    masked_reward()
    dead_sessions()
    chat_wrap()
    run_lease_s()
    end_run_at_start()
    connect_s()
    Timeouts.of_environment()


def _switch(name: str, *, default: bool) -> bool:
    value = os.environ.get(name, "").strip().lower()
    if value in ("1", "true", "yes", "on"):
        return True
    if value in ("0", "false", "no", "off"):
        return False
    if value:
        raise SettingsError(f"{name} is neither on nor off: {value!r}")
    return default
