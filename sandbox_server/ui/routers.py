"""The routers of all pages, in the order in which the application mounts them."""

from sandbox_server.ui import api_docs, pages, session_page
from sandbox_server.ui.pages import TRAITS as TRAITS

ROUTERS = (pages.OPEN, pages.ROUTER, session_page.ROUTER, api_docs.ROUTER)
"""They use `app.state`: `logins`, `followed` (at first an empty set), `stopping` (whether the server stops), and what
the protocols use."""
