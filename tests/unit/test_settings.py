"""Sources of settings, and their parsing."""

import re
import socket

import pytest
from pydantic import ValidationError
from sqlalchemy.engine import make_url

from sandbox_server.cli import configuration
from sandbox_server.settings import Settings, load


@pytest.fixture
def fresh():
    load.cache_clear()
    yield
    load.cache_clear()


def test_secrets_are_read_from_files(monkeypatch, tmp_path, fresh):
    """Swarms and Kubernetes mount secrets as files; in the environment `docker inspect` would show them."""
    (tmp_path / "sandbox_api_keys").write_text("one, two\n")
    (tmp_path / "sandbox_database_password").write_text("p@ss\n")
    monkeypatch.setenv("SANDBOX_SECRETS_DIR", str(tmp_path))
    monkeypatch.delenv("SANDBOX_API_KEYS", raising=False)
    settings = load()
    assert [key.get_secret_value() for key in settings.api_keys] == ["one", "two"]
    assert settings.database_password and settings.database_password.get_secret_value() == "p@ss"
    assert "p@ss" not in repr(settings)


def test_the_environment_goes_before_a_secret(monkeypatch, tmp_path, fresh):
    """An operator who overrides a key for one start must not have to touch the secret."""
    (tmp_path / "sandbox_api_keys").write_text("secret")
    monkeypatch.setenv("SANDBOX_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("SANDBOX_API_KEYS", "given")
    assert [key.get_secret_value() for key in load().api_keys] == ["given"]


@pytest.mark.parametrize("password", ["plain", "p@ss:w/rd%?#", "ü ö"])
@pytest.mark.parametrize("user", ["sandbox", "sandbox:former"])
def test_the_password_becomes_part_of_the_url(password, user):
    """Generated passwords hold characters that cut a URL in the wrong place."""
    url = make_url(
        Settings(database_url=f"postgresql://{user}@db:5432/name?ssl=require", database_password=password).database
    )
    assert (url.username, url.password, url.host, url.port, url.database) == ("sandbox", password, "db", 5432, "name")
    assert url.query == {"ssl": "require"}


def test_without_a_database_url_the_password_is_of_no_use(tmp_path):
    """SQLite has none."""
    assert Settings(data_dir=tmp_path, database_password="x").database == f"sqlite:///{tmp_path}/catalogue.sqlite3"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"confirm": 0.0}, "above 0 and up to 1"),
        ({"confirm": 1.5}, "above 0 and up to 1"),
        ({"disk_low_pct": 85}, "does not hold"),
        ({"disk_refuse_pct": 80}, "does not hold"),
        ({"service_networks": "10.213.0.0/29"}, "at least 16 addresses"),
    ],
)
def test_values_that_would_do_harm_are_refused(wrong, why):
    """No run would be confirmed, or images removed without end, and nothing would say so."""
    with pytest.raises(ValidationError, match=why):
        Settings(**wrong)
    Settings(confirm=1.0, disk_low_pct=80, service_networks="10.213.0.0/28")


def test_lists_and_urls_as_people_write_them():
    """A comma at the end would pin an image without a name; a slash at the end would double in each forwarded path."""
    assert Settings(pinned_images="a:1, ,b:2,").pinned_images == ("a:1", "b:2")
    assert Settings(node_url="http://n:5000/").own_url == "http://n:5000"
    for host in ("0.0.0.0", "::", ""):
        assert Settings(host=host, port=7).own_url == f"http://{socket.gethostname()}:7"


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("SANDBOX_PORT", "x", "error: SANDBOX_PORT: Input should be a valid integer"),
        ("SANDBOX_REDIS_URL", "http://x", "error: SANDBOX_REDIS_URL: a URL begins with redis://"),
        ("SANDBOX_NODE_URL", "n1:5000", "error: SANDBOX_NODE_URL: a URL begins with http://"),
        ("SANDBOX_NODE_URL", "http://[::1", "error: SANDBOX_NODE_URL: other nodes cannot reach it"),
        ("SANDBOX_NODE_URL", "http://n1:port", "error: SANDBOX_NODE_URL: other nodes cannot reach it"),
        ("SANDBOX_DISK_LOW_PCT", "99", "error: SANDBOX_DISK_LOW_PCT < SANDBOX_DISK_HIGH_PCT"),
    ],
)
def test_a_wrong_value_is_told_with_its_name(monkeypatch, fresh, name, value, told):
    """A line such as `SANDBOX_: Value error, ...` names no setting; a wrong URL was found out by its first use."""
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=f"^{re.escape(told)}"):
        configuration.load()
