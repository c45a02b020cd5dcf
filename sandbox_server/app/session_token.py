"""The token of a session in place of an API key, on the paths that take one (`Trait.token`)."""

from collections.abc import Mapping, Sequence
from typing import cast

from starlette.datastructures import State

from sandbox_server.catalogue.session_tokens import SessionTokens, is_token
from sandbox_server.protocols._caller import NO_SESSION, canonical_sid
from sandbox_server.protocols._wire import KEY_NAME, KEY_OWNER, KEY_SESSION, KEY_VIEWS
from sandbox_server.sessions.base import Sessions


async def session_of_token(state: State, path: str, offered: Sequence[bytes]) -> Mapping[str, object] | None:
    """Scope entries for a request that offers the token of the session at the end of its path; None if it does not.

    The request counts as one of the session's owner, but `app.rights` admits it to that session alone. `state`: the
    application's.

    Raises:
        StateUnavailable, CatalogueUnavailable.
    """
    sid = canonical_sid(path.rstrip("/").rpartition("/")[2])  # the router takes a slash at the end too
    tokens = [text for text in (raw.decode("latin-1") for raw in offered) if is_token(text)]
    if sid == NO_SESSION or not tokens:
        return None
    for token in tokens:
        if await cast(SessionTokens, state.session_tokens).opens(sid, token):
            owner = await cast(Sessions, state.sessions).owner(sid)
            return None if owner is None else {KEY_NAME: "", KEY_OWNER: owner, KEY_VIEWS: False, KEY_SESSION: sid}
    return None
