"""Client of the sandbox service. `sandbox_client.swedev_utils` is the drop-in for veRL."""

from sandbox_client.answers import AnswerError, CommandResult, NextStep, Observation, Reward
from sandbox_client.client import SandboxClient, Session
from sandbox_client.errors import (
    BadAnswer,
    CallTimedOut,
    NoCapacity,
    RequestRejected,
    SandboxError,
    ServiceFault,
    SettingsError,
    Unauthorized,
    Ungradable,
    UnknownInstance,
    UnknownSession,
    Unreachable,
)
from sandbox_client.hashing import instance_hash
from sandbox_client.timeouts import Timeouts

__version__ = "0.1.0"

__all__ = [
    "AnswerError",
    "BadAnswer",
    "CallTimedOut",
    "CommandResult",
    "NextStep",
    "NoCapacity",
    "Observation",
    "RequestRejected",
    "Reward",
    "SandboxClient",
    "SandboxError",
    "ServiceFault",
    "Session",
    "SettingsError",
    "Timeouts",
    "Unauthorized",
    "Ungradable",
    "UnknownInstance",
    "UnknownSession",
    "Unreachable",
    "instance_hash",
]
