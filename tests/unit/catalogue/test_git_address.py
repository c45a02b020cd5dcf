"""What is refused before git ever sees it."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from sandbox_server.catalogue.git_address import inside
from sandbox_server.catalogue.instance import GitSource, SandboxSpec

COMMIT = 40 * "a"


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/owner/name.git",
        "https://git.example.org:8443/group/sub/name",
        "http://127.0.0.1:8000/a.git",
        "http://[::1]:8000/a.git",
        "git://example.org/~user/a.git",
    ],
)
def test_plain_urls(url: str) -> None:
    """As they are."""
    assert GitSource(url=url, commit=COMMIT).url == url


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ext::sh -c touch% /tmp/x", "custom transport"),
        ("fd::17", "custom transport"),
        ("-uhttps://x/y", "not an https, http or git URL"),
        ("--upload-pack=touch /tmp/x", "blanks"),
        ("ssh://-oProxyCommand=touch/x", "not an https, http or git URL"),
        ("ssh://git@example.org/x", "not an https, http or git URL"),
        ("git@example.org:owner/name.git", "not an https, http or git URL"),
        ("file:///etc", "a folder goes into `path`"),
        ("/srv/mirror.git", "a folder goes into `path`"),
        ("https://user:secret@example.org/x", "credentials"),
        ("https://token@example.org/x", "credentials"),
        ("https:///x", "no proper host"),
        ("https://-x/y", "no proper host"),
        ("https://example.org", "no plain path"),
        ("https://example.org/a/../../b", "no plain path"),
        ("https://example.org/a?service=x", "no plain path"),
        ("https://example.org/--upload-pack=x", "option"),
        ("https://example.org/a\nb", "control characters"),
        ("https://example.org/a b", "blanks"),
        ("https://example.org\\@evil.example/a", "backslashes"),
    ],
)
def test_refused_urls(url: str, why: str) -> None:
    """Each with the reason; a secret is not repeated."""
    with pytest.raises(ValidationError, match=why) as caught:
        GitSource(url=url, commit=COMMIT)
    assert "secret" not in caught.value.errors()[0]["msg"]


@pytest.mark.parametrize("path", ["mirror.git", "/srv/../etc", "/srv/a\0b", "~/x", "/srv/a\nb"])
def test_refused_paths(path: str) -> None:
    with pytest.raises(ValidationError, match="not an absolute path"):
        GitSource(path=path, commit=COMMIT)


@pytest.mark.parametrize("repo", ["../x", "a/../b", "a/./b", "-a/b", "a b/c", "a//b", "/a", "a/b/", "a/b?c", "a:b"])
def test_refused_names(repo: str) -> None:
    """They go into a URL, or into a path."""
    with pytest.raises(ValidationError, match="not a name such as"):
        GitSource(repo=repo, commit=COMMIT)


@pytest.mark.parametrize("commit", ["main", "v1.0", "abcdef1", "HEAD", 41 * "a", "--all", 40 * "g"])
def test_refused_commits(commit: str) -> None:
    """What may mean something else tomorrow."""
    with pytest.raises(ValidationError, match="not a full commit id"):
        GitSource(repo="a/b", commit=commit)


def test_sources_that_contradict_themselves() -> None:
    with pytest.raises(ValidationError, match="exactly one"):
        GitSource(commit=COMMIT)
    with pytest.raises(ValidationError, match="exactly one"):
        GitSource(repo="a/b", url="https://example.org/a", commit=COMMIT)
    with pytest.raises(ValidationError, match="would show the patch"):
        GitSource(repo="a/b", commit=COMMIT, patch="diff", history=True)


def test_name_holds_all_of_it() -> None:
    """Two sources share an image only if they are the same."""
    sources = [
        GitSource(repo="a/b", commit=COMMIT),
        GitSource(repo="a/c", commit=COMMIT),
        GitSource(repo="a/b", commit=40 * "b"),
        GitSource(repo="a/b", commit=COMMIT, patch="diff"),
        GitSource(repo="a/b", commit=COMMIT, history=True),
        GitSource(path="/a/b", commit=COMMIT),
        GitSource(url="https://example.org/a/b", commit=COMMIT),
    ]
    assert len({source.name for source in sources}) == len(sources)
    assert GitSource(repo="a/b", commit=COMMIT.upper()).name == sources[0].name
    assert SandboxSpec(source=sources[0]).image_keys == (sources[0].name,)
    assert SandboxSpec(images=("i",)).image_keys == ("i",)


def test_links_out_of_a_folder(tmp_path: Path) -> None:
    """A link inside the folder that leads out of it is not inside."""
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    (allowed / "mirror").mkdir(parents=True)
    other.mkdir()
    (allowed / "link").symlink_to(other)
    assert inside(str(allowed / "mirror"), (allowed,)) == (allowed / "mirror").resolve()
    assert inside(str(allowed / "link"), (allowed,)) is None
    assert inside(str(tmp_path / "allowed-too"), (allowed,)) is None
    assert inside(str(allowed), ()) is None
