"""OpenEnv's protocol: reset, step and state."""

import re

from fastapi import APIRouter

from sandbox_server.protocols._traits import Trait
from sandbox_server.protocols.openenv import routes, sockets

ROUTER = APIRouter(routes=[*routes.ROUTER.routes, *sockets.ROUTER.routes])
TRAITS = (Trait(re.compile(r"/openenv/((instances/.+|sessions/[^/]+)/)?ws$"), sockets=True),)
