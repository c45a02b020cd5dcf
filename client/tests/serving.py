"""What a test needs to know of the service it drives."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Service:
    url: str
    instance_id: str
    solve: str
    """A bash command after which the session earns 1.0."""
