"""E2B's protocol: the control plane (`control`), and envd, the part that E2B runs inside each sandbox."""

from fastapi import APIRouter

from sandbox_server.protocols.e2b import control

ROUTER = APIRouter()
ROUTER.include_router(control.ROUTER)
