"""All pages, for the application to mount."""

from sandbox_server.ui import api_docs, pages, session_page
from sandbox_server.ui.pages import TRAITS as TRAITS

ROUTERS = (pages.OPEN, pages.ROUTER, session_page.ROUTER, api_docs.ROUTER)
"""State that they use: `logins`, `followed` (an initially empty set), and the state of the protocols."""
