"""E2B's protocol: the control plane (`control`) and envd, which E2B runs inside each sandbox."""

import re

from fastapi import APIRouter

from sandbox_server.protocols._traits import Trait
from sandbox_server.protocols.e2b import control, envd, monitoring, snapshots, templates
from sandbox_server.protocols.e2b.hosts import BY_HOST as BY_HOST
from sandbox_server.protocols.e2b.refusals import refuse

ROUTER = APIRouter(
    routes=[
        *snapshots.ROUTER.routes,
        *templates.ROUTER.routes,
        *monitoring.ROUTER.routes,
        *control.ROUTER.routes,
        *envd.ROUTER.routes,
    ]
)
TRAITS = (
    Trait(re.compile(r"/(v[2-9]/)?(sandboxes|templates|snapshots|volumes|secrets)(/|$)"), refuse=refuse),
    Trait(re.compile(re.escape(templates.UPLOADS)), True, True, refuse),
    Trait(re.compile(r"/((process\.Process|filesystem\.Filesystem)/|files$|health$)"), True, True, refuse),
)
"""envd's requests have no API key: `access.box_of` checks access."""
