"""All pages, as the application mounts them."""

from sandbox_server.ui import pages, session_page
from sandbox_server.ui.pages import TRAITS as TRAITS

ROUTERS = (pages.OPEN, pages.ROUTER, session_page.ROUTER)
"""Their state: `logins`, `followed` (a set, at first empty), and what the protocols use."""
