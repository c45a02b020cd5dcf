"""Sandboxes and grading over HTTP for RL training of software-engineering agents."""

__version__ = "0.1.0"
