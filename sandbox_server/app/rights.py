"""Access rights: the table of all routes, and the check before each request.

An operator (a key without a name, or a server without keys) may do everything. A tenant (a key with a name) acts for
itself; other owners' sessions do not exist for it. A viewer sees what an operator sees, but changes nothing. A route
that is not in the table requires an operator's key. The token of a session opens only the routes of OWN_AGENT.
"""

from enum import Enum

from starlette.requests import HTTPConnection

from sandbox_server.errors import Forbidden
from sandbox_server.protocols._caller import check_receipt, check_session, owner_of_caller
from sandbox_server.protocols._wire import KEY_SESSION, KEY_VIEWS


class Right(Enum):
    """The right that a route requires of the key."""

    LOOK = "any key"
    ACT = "any key but a viewer's; what the route then starts, lists or names in its body is the tenant's own"
    OWN_LOOK = "the session or the receipt in the path is the key's"
    OWN_ACT = "as OWN_LOOK, and no viewer's key"
    OWN_AGENT = "as OWN_ACT, or the token of the session in the path"
    ALL_LOOK = "an operator's or a viewer's key: it shows all runs"
    ALL_ACT = "an operator's key"
    ITSELF = "no key: the route sees who may pass"


_LOOKS = (Right.LOOK, Right.OWN_LOOK, Right.ALL_LOOK, Right.ITSELF)
_ALL = (Right.ALL_LOOK, Right.ALL_ACT)
_OWN = (Right.OWN_LOOK, Right.OWN_ACT, Right.OWN_AGENT)

RIGHTS: dict[str, Right] = {
    "GET /healthz": Right.ITSELF,
    "GET /readyz": Right.LOOK,
    "GET /metrics": Right.ALL_LOOK,
    # veRL
    "POST /start_instance": Right.ACT,
    "POST /process_action": Right.ACT,
    "POST /postprocess": Right.ACT,
    "POST /compute_reward": Right.ACT,
    # MCP: the route looks only among the caller's sessions
    "POST /mcp": Right.ACT,
    "POST /mcp/sessions/{sid}": Right.OWN_AGENT,
    # OpenEnv: as MCP; a websocket's messages are also requests of its key
    "GET /openenv/health": Right.LOOK,
    "GET /openenv/metadata": Right.LOOK,
    "GET /openenv/schema": Right.LOOK,
    "GET /openenv/state": Right.LOOK,
    "POST /openenv/reset": Right.ACT,
    "POST /openenv/step": Right.ACT,
    "WEBSOCKET /openenv/ws": Right.ACT,
    "WEBSOCKET /openenv/instances/{instance_id:path}/ws": Right.ACT,
    "WEBSOCKET /openenv/sessions/{sid}/ws": Right.OWN_ACT,
    # sessions
    "GET /v1/sessions": Right.LOOK,
    "POST /v1/sessions/{sid}/fork": Right.OWN_ACT,
    "POST /v1/sessions/{sid}/open": Right.ALL_ACT,
    "POST /v1/sessions/{sid}/tokens": Right.OWN_ACT,
    "GET /v1/sessions/{sid}/tree": Right.OWN_LOOK,
    "POST /v1/sessions/{sid}/rollback": Right.OWN_ACT,
    "GET /v1/sessions/{sid}": Right.OWN_LOOK,
    "DELETE /v1/sessions/{sid}": Right.OWN_ACT,
    "GET /v1/sessions/{sid}/patch": Right.OWN_LOOK,
    "GET /v1/sessions/{sid}/actions": Right.OWN_LOOK,
    "GET /v1/sessions/{sid}/asciicast": Right.OWN_LOOK,
    "POST /v1/sessions/{sid}/exec": Right.OWN_ACT,
    "PUT /v1/sessions/{sid}/rollout": Right.OWN_ACT,
    "GET /v1/receipts/{receipt_id}": Right.OWN_LOOK,
    "GET /v1/metrics/rollout": Right.LOOK,
    "GET /v1/overview": Right.ALL_LOOK,
    "GET /v1/groups": Right.ALL_LOOK,
    "GET /v1/runs": Right.ALL_LOOK,
    "GET /v1/pass-rates": Right.ALL_LOOK,
    "GET /v1/pass-rates/{instance_id:path}": Right.ALL_LOOK,
    "GET /v1/export": Right.ALL_LOOK,
    "GET /v1/actions/search": Right.ALL_LOOK,
    "POST /v1/groups": Right.ACT,
    "POST /v1/grade": Right.ACT,
    # runs: the route checks the run's owner
    "DELETE /v1/runs/{run:path}/sessions": Right.ACT,
    "PUT /v1/runs/{run:path}/lease": Right.ACT,
    "DELETE /v1/runs/{run:path}/lease": Right.ACT,
    # instances, pool, nodes
    "GET /v1/instances": Right.LOOK,
    "GET /v1/instances/{instance_id:path}": Right.LOOK,
    "POST /v1/lookahead": Right.ACT,
    "GET /v1/pool": Right.ALL_LOOK,
    "GET /v1/nodes": Right.ALL_LOOK,
    "POST /v1/nodes/{node}/drain": Right.ALL_ACT,
    "DELETE /v1/nodes/{node}/drain": Right.ALL_ACT,
    # boxes
    "POST /v1/boxes": Right.ACT,
    "GET /v1/boxes/{sid}": Right.OWN_LOOK,
    "DELETE /v1/boxes/{sid}": Right.OWN_ACT,
    "POST /v1/boxes/{sid}/lifetime": Right.OWN_ACT,
    "POST /v1/boxes/{sid}/commands": Right.OWN_ACT,
    "GET /v1/boxes/{sid}/commands/{command_id}": Right.OWN_ACT,  # the end of a command is reported only once
    "DELETE /v1/boxes/{sid}/commands/{command_id}": Right.OWN_ACT,
    "POST /v1/boxes/{sid}/fork": Right.OWN_ACT,
    "POST /v1/boxes/{sid}/pause": Right.OWN_ACT,
    "POST /v1/boxes/{sid}/resume": Right.OWN_ACT,
    "POST /v1/boxes/{sid}/snapshots": Right.OWN_ACT,
    # snapshots: the routes look only among the caller's
    "GET /v1/snapshots": Right.LOOK,
    "DELETE /v1/snapshots/{snapshot}": Right.ACT,
    "PUT /v1/boxes/{sid}/files": Right.OWN_ACT,
    "GET /v1/boxes/{sid}/files": Right.OWN_ACT,  # reading a file runs in the box
    "GET /v1/boxes/{sid}/files/info": Right.OWN_ACT,
    "GET /v1/boxes/{sid}/files/list": Right.OWN_ACT,
    "POST /v1/boxes/{sid}/files/from-blob": Right.OWN_ACT,
    "HEAD /v1/blobs/{sha256}": Right.ACT,
    "PUT /v1/blobs/{sha256}": Right.ACT,
    # E2B
    "POST /sandboxes": Right.ACT,
    "POST /v2/sandboxes": Right.ACT,
    "GET /sandboxes": Right.LOOK,
    "GET /v2/sandboxes": Right.LOOK,
    "GET /sandboxes/{sid}": Right.OWN_ACT,  # the answer contains the box's access token
    "DELETE /sandboxes/{sid}": Right.OWN_ACT,
    "POST /sandboxes/{sid}/connect": Right.OWN_ACT,
    "POST /v2/sandboxes/{sid}/connect": Right.OWN_ACT,
    "POST /sandboxes/{sid}/pause": Right.OWN_ACT,
    "POST /sandboxes/{sid}/resume": Right.OWN_ACT,
    "POST /sandboxes/{sid}/timeout": Right.OWN_ACT,
    "POST /sandboxes/{sid}/refreshes": Right.OWN_ACT,
    "PUT /sandboxes/{sid}/network": Right.OWN_ACT,
    "POST /sandboxes/{sid}/snapshots": Right.OWN_ACT,
    "POST /sandboxes/{sid}/fork": Right.OWN_ACT,
    "GET /snapshots": Right.LOOK,
    "GET /sandboxes/metrics": Right.LOOK,  # each sandbox is then asked for by its own path
    "GET /sandboxes/{sid}/metrics": Right.OWN_LOOK,
    "GET /sandboxes/{sid}/logs": Right.OWN_LOOK,
    "GET /v2/sandboxes/{sid}/logs": Right.OWN_LOOK,
    # templates: the routes look only among the caller's
    "POST /v3/templates": Right.ACT,
    "POST /v2/templates": Right.ACT,
    "POST /v2/templates/{template_id}/builds/{build_id}": Right.ACT,
    "GET /templates/{template_id}/files/{files_hash}": Right.ACT,  # the answer opens an upload
    "PUT /templates-upload/{token}": Right.ITSELF,
    "GET /templates/{template_id}/builds/{build_id}/status": Right.LOOK,
    "GET /templates/{template_id}/builds/{build_id}/logs": Right.LOOK,
    "GET /templates/aliases/{alias:path}": Right.LOOK,
    "POST /templates/tags": Right.ACT,
    "DELETE /templates/tags": Right.ACT,
    "GET /templates/{template_id}/tags": Right.LOOK,
    "GET /templates": Right.LOOK,
    "GET /v2/templates": Right.LOOK,
    "GET /templates/{template_id}": Right.LOOK,
    "DELETE /templates/{template_id}": Right.ACT,
}

_TOLD = {
    Right.ALL_ACT: "This needs an operator's key: one of SANDBOX_API_KEYS without a name.",
    Right.ALL_LOOK: "This shows all runs: it needs an operator's key (without a name), or one of SANDBOX_VIEW_KEYS.",
}


async def admit(request: HTTPConnection, path: str) -> None:
    """Check that the request's key may use the route of this path template.

    Raises:
        Forbidden. UnknownSession, UnknownReceipt: it belongs to another owner. StateUnavailable, CatalogueUnavailable.
    """
    right = RIGHTS.get(f"{request.scope.get('method', 'WEBSOCKET')} {path}", Right.ALL_ACT)
    if (only := request.scope.get(KEY_SESSION)) is not None:
        if right is not Right.OWN_AGENT or request.path_params.get("sid") != only:
            raise Forbidden("The token of a session opens that session's tools alone.")
        return
    if request.scope.get(KEY_VIEWS, False) and right not in _LOOKS:
        raise Forbidden("A key of SANDBOX_VIEW_KEYS only looks.")
    if owner_of_caller(request) is None:
        return
    if right in _ALL:
        raise Forbidden(_TOLD[right])
    if right in _OWN and (receipt := request.path_params.get("receipt_id")) is not None:
        await check_receipt(request, str(receipt))
    elif right in _OWN:
        await check_session(request, str(request.path_params["sid"]))


async def admit_routed(request: HTTPConnection) -> None:
    """As `admit`, for a request that the router has matched to a route."""
    await admit(request, request.scope["route"].path)
