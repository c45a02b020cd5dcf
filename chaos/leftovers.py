"""Looks for leftovers of a run: processes, mounts, namespaces, interfaces, containers, folders."""

import tempfile
from pathlib import Path

from chaos.mounts import mounts_below
from chaos.processes import processes_of, run


def leftovers(run_id: str) -> list[str]:
    """One line for each thing that still has the run's name."""
    folder = next(Path(tempfile.gettempdir()).glob(f"chaos-{run_id}-*"), None)
    mark = f"chaos-{run_id}"
    left = [f"process {pid}" for pid in processes_of(mark)]
    left += [f"mount {point}" for point in mounts_below(folder or Path("/nowhere"))]
    left += [f"namespace {line}" for line in run("ip", "netns", "list").splitlines() if mark in line]
    left += [f"interface {line}" for line in run("ip", "-o", "link").splitlines() if f" ch{run_id}" in line]
    listing = ("docker", "ps", "-a", "--format", '{{.ID}} {{.Label "sandbox.node"}}', "--filter", "label=sandbox.node")
    left += [f"container {line}" for line in run(*listing).splitlines() if f" {run_id}-" in line]
    return left + ([f"folder {folder}"] if folder else [])
