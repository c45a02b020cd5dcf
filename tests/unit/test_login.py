"""The login of the pages: what a cookie and a form's token prove."""

from types import SimpleNamespace

import pytest
from starlette.requests import Request
from starlette.responses import Response

from sandbox_server.app.access import role_of
from sandbox_server.ui.login import COOKIE, LASTS_S, Logins
from sandbox_server.ui.route import _to_login

KEYS, VIEWS = ["operators-key"], ["looks-on-key"]


@pytest.fixture
def logins() -> Logins:
    return Logins(role_of(KEYS, VIEWS), [*KEYS, *VIEWS])


def _request(cookie: str = "", **headers: str) -> Request:
    named = {"cookie": f"{COOKIE}={cookie}", **headers} if cookie else headers
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in named.items()]
    return Request({"type": "http", "method": "POST", "path": "/ui", "headers": pairs})


def _cookie(logins: Logins, key: str) -> str:
    response = Response()
    assert logins.begin(key, response, secure=True)
    set_cookie = response.headers["set-cookie"]
    assert "HttpOnly" in set_cookie and "SameSite=strict" in set_cookie and "Secure" in set_cookie
    return set_cookie.partition("=")[2].partition(";")[0]


def test_a_login_ends(logins: Logins, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cookie that was copied once would open the pages for ever."""
    monkeypatch.setattr("sandbox_server.ui.login.clock", SimpleNamespace(now=lambda: 1000.0))
    cookie = _cookie(logins, "operators-key")
    for after_s, role in ((LASTS_S - 1, "operator"), (LASTS_S + 1, None)):
        monkeypatch.setattr(
            "sandbox_server.ui.login.clock", SimpleNamespace(now=lambda after_s=after_s: 1000.0 + after_s)
        )
        assert logins.role(_request(cookie)) == role


def test_how_long_a_login_lasts_is_asked_of_valid_ones(logins: Logins) -> None:
    """A logout without a cookie, or with one of a former server, ends in an error."""
    assert LASTS_S - 5 < logins.left_s(_request(_cookie(logins, "operators-key"))) <= LASTS_S
    for cookie in ("", "x.y.z.s", "9999999999.operator.x.s"):
        assert logins.left_s(_request(cookie)) == 0.0


def test_a_cookie_is_the_servers(logins: Logins) -> None:
    """A viewer would write itself another role, or a removed key's cookie go on."""
    assert not logins.begin("wrong", Response(), secure=True)
    viewers = _cookie(logins, "looks-on-key")
    assert logins.role(_request(viewers)) == "viewer"
    for forged in ("", ".", "x.y.z.s", viewers.replace("viewer", "operator"), viewers[:-1], viewers + "0"):
        assert logins.role(_request(forged)) is None
    assert Logins(role_of(["new-keys"], []), ["new-keys"]).role(_request(viewers)) is None


def test_who_may_change_what_a_page_shows(logins: Logins) -> None:
    """Another site, or a viewer, would end sessions by the form of an operator who is logged in."""
    operators, viewers = _cookie(logins, "operators-key"), _cookie(logins, "looks-on-key")
    token = logins.token(_request(operators))
    assert logins.may_change(_request(operators), token)
    assert logins.may_change(_request(operators, sec_fetch_site="same-origin"), token)
    assert not logins.may_change(_request(operators, sec_fetch_site="cross-site"), token)
    assert not logins.may_change(_request(operators, sec_fetch_site="same-site"), token)
    for wrong in ("", "x", logins.token(_request(viewers)), logins.token(_request())):
        assert not logins.may_change(_request(operators), wrong)
    assert not logins.may_change(_request(viewers), logins.token(_request(viewers)))
    assert not logins.may_change(_request(), logins.token(_request()))


def test_without_keys_only_the_token_counts() -> None:
    """On a laptop every page of another site could end the sessions."""
    logins = Logins(role_of([], []), [])
    assert logins.role(_request()) == "operator"
    assert logins.may_change(_request(), logins.token(_request())) and not logins.may_change(_request(), "x")
    assert Logins(role_of([], []), []).token(_request()) != logins.token(_request())


def test_all_servers_of_a_service_know_a_login(logins: Logins) -> None:
    """With the keys in another order on each node a person would be asked for a key at every other page."""
    other = Logins(role_of(KEYS, VIEWS), [*VIEWS, *KEYS])
    assert other.role(_request(_cookie(logins, "looks-on-key"))) == "viewer"


def test_after_a_login_a_form_is_not_sent_again() -> None:
    """The browser would ask by GET for a path that only takes POST."""
    asked = {"type": "http", "path": "/ui/nodes/n", "query_string": b"a=1", "headers": [], "server": ("h", 80)}
    for method, to in (("GET", "%2Fui%2Fnodes%2Fn%3Fa%3D1"), ("POST", "%2Fui")):
        assert _to_login(Request({**asked, "method": method})).headers["location"] == f"/ui/login?to={to}"
