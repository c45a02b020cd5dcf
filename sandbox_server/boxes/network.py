"""Network access of boxes: parse a request's rules, and apply new rules to a running box."""

from collections.abc import Sequence

from sandbox_server.boxes.view import BoxView
from sandbox_server.errors import MalformedRequest
from sandbox_server.sandbox.base import Runtime
from sandbox_server.sandbox.egress import EVERYTHING, Egress, Target

_MOST_TARGETS = 256


def egress_of(allow: Sequence[str], deny: Sequence[str]) -> Egress | None:
    """The egress rules of a request in E2B's format; None: no rules.

    Allow entries win over deny entries. With only allow entries the rest is denied: an allow list that blocks nothing
    is never intended.

    Raises:
        MalformedRequest: an entry cannot be enforced, or there are too many.
    """
    if not allow and not deny:
        return None
    if len(allow) + len(deny) > _MOST_TARGETS:
        raise MalformedRequest(f"more than {_MOST_TARGETS} rules for the network; name ranges of addresses")
    try:
        allowed, denied = (tuple(map(Target.parse, entries)) for entries in (allow, deny))
    except ValueError as e:
        raise MalformedRequest(f"rules for the network: {e}") from e
    if any(target.is_name or target.domain for target in denied):
        raise MalformedRequest("a host name cannot be denied, because its addresses change: deny addresses")
    everything = any(target.host in EVERYTHING and target.port is None for target in denied)
    return Egress(allowed, denied, rest=bool(denied) and not everything)


async def connect(runtime: Runtime, view: BoxView, network: str, egress: Egress | None) -> None:
    """Connect a box to its network with these rules, or disconnect it.

    Rules change while the box is disconnected, or while its old rules still apply.

    Raises:
        MalformedRequest: it was created without a network. EgressUnavailable and other InfrastructureError.
    """
    container_id, off = view.record.container_id, network == "none"
    if off:
        await runtime.connect(container_id, on=False)
    restricted = view.box.network != "none" and (view.box.allow_out or view.box.deny_out)
    if restricted or (egress and not off):
        await runtime.restrict(container_id, None if off else egress)
    if not off and not await runtime.connect(container_id, on=True):
        raise MalformedRequest(f"box {view.sid} was made without a network and cannot be given one; make another box")
