"""Repositories that sandboxes are made from."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import NoDecode


class RepositorySettings(BaseModel):
    """Repositories that sandboxes are made from."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    # Repositories
    search_image: str = "sandbox-search:latest"
    """Image for instances that name a repository but no image: bash, git and search tools.
    `sandbox-server images build search` builds it."""
    task_builds: Annotated[int, Field(ge=1)] = 1
    """Images that are built from tasks' Dockerfiles at a time, on this node."""
    task_build_s: Annotated[float, Field(gt=0)] = 3600.0
    """Limit on one such build; a task's own limit may be lower."""
    repositories_dir: Path | None = None
    """Folder of the repository mirrors, which several servers may share; unset: `repositories` in SANDBOX_DATA_DIR."""
    repositories_max_mb: Annotated[int, Field(ge=1)] = 51200
    """Limit on the total size of all mirrors; the least recently used are removed first."""
    repository_url: str = "https://github.com/{repo}.git"
    """URL or absolute path of a repository that a row names as owner/name."""
    repository_folders: Annotated[tuple[Path, ...], NoDecode] = ()
    """Comma-separated folders on this host that instances may take repositories from."""
    repository_protocols: Annotated[tuple[Literal["https", "http", "git"], ...], NoDecode] = ("https",)
    """Comma-separated protocols for fetching repositories. Credentials are never used."""
    repository_fetch_timeout_s: Annotated[float, Field(gt=0)] = 900.0
    """Timeout of one attempt to fetch from a repository."""
    repository_silence_s: Annotated[float, Field(gt=0)] = 60.0
    """A fetch without progress for this long is stopped."""
    repository_attempts: Annotated[int, Field(ge=1)] = 3
    """Attempts to fetch, 2 s apart and then twice as long, before an instance's image counts as unavailable; the next
    start tries again."""
    repository_fetches: Annotated[int, Field(ge=1)] = 4
    """Repositories fetched at a time."""
