"""Validates addresses of repositories before git sees them. Pure."""

import re
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

_SCHEMES = ("https", "http", "git")
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")
_REPO = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def checked_url(url: str) -> str:
    """Return `url` unchanged if it is a plain URL of a repository.

    Raises:
        ValueError: it has another scheme (ssh would need a key, and there are no credentials here), a transport helper
            (`ext::...` runs commands), a part that a program could take for an option, a user or password, or `..`.

    """
    if "::" in url.partition("//")[0]:
        raise ValueError(f"{_shown(url)} names a custom transport, which may run commands")
    if not url.isprintable() or " " in url or "\\" in url:
        raise ValueError(f"{_shown(url)} holds blanks, backslashes or control characters")
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        how = "a folder goes into `path`" if parts.scheme in ("", "file") else "no other is fetched"
        raise ValueError(f"{_shown(url)} is not an https, http or git URL; {how}")
    if "@" in parts.netloc:
        raise ValueError("the URL holds credentials, which are never kept; mirror the repository into a local folder")
    if not _HOST.fullmatch(parts.netloc):
        raise ValueError(f"{_shown(url)} has no proper host")
    if parts.query or parts.fragment or ".." in parts.path.split("/") or parts.path.strip("/") == "":
        raise ValueError(f"{_shown(url)} has no plain path (no `..`, query or fragment)")
    if any(part.startswith("-") for part in parts.path.split("/")):
        raise ValueError(f"{_shown(url)} has a part of its path that a server could take for an option")
    return url


def checked_path(path: str) -> str:
    """Return `path` unchanged if it is valid.

    Raises:
        ValueError: it is not absolute, or holds `..` or control characters.

    """
    if not path.startswith("/") or ".." in PurePosixPath(path).parts or "\0" in path or not path.isprintable():
        raise ValueError(f"{_shown(path)} is not an absolute path without `..`")
    return path


def checked_repo(repo: str) -> str:
    """Return `owner/name` unchanged if it is valid.

    Raises:
        ValueError: below a URL it could lead to something else than a repository.

    """
    if not _REPO.fullmatch(repo) or any(part in (".", "..") for part in repo.split("/")):
        raise ValueError(f"{_shown(repo)} is not a name such as owner/name")
    return repo


def checked_commit(commit: str) -> str:
    """The full commit id in lower case; "" is returned unchanged.

    Raises:
        ValueError: a branch, a tag or a shortened id, which may mean another commit tomorrow.

    """
    commit = commit.lower()
    if commit and not _COMMIT.fullmatch(commit):
        raise ValueError(f"{_shown(commit)} is not a full commit id of 40 (or 64) hexadecimal digits")
    return commit


def inside(path: str, folders: tuple[Path, ...]) -> Path | None:
    """The folder that `path` resolves to, if it is inside one of `folders`, else None. Blocks on the file system."""
    real = Path(path).resolve()
    return real if any(real.is_relative_to(folder.resolve()) for folder in folders) else None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 120 else text[:117] + "...")
