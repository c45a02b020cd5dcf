"""A package as the Environments Hub has them: its name is the id, its exports are the environment."""

from sandbox_client.verifiers_v1 import SandboxEnv, SandboxHarness, SandboxTaskset

__all__ = ["SandboxEnv", "SandboxHarness", "SandboxTaskset"]
