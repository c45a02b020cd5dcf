"""What of the network a box reaches: a request's words as rules, and a running box held to new ones."""

from collections.abc import Sequence

from sandbox_server.boxes.view import BoxView
from sandbox_server.errors import MalformedRequest
from sandbox_server.sandbox.base import Runtime
from sandbox_server.sandbox.egress import EVERYTHING, Egress, Target

_MOST_TARGETS = 256


def egress_of(allow: Sequence[str], deny: Sequence[str]) -> Egress | None:
    """What a request wants to be held to, in E2B's words; None: to nothing.

    What it allows wins over what it denies. When it only allows, the rest is denied: a list of what may be reached that
    holds back nothing is never what was meant.

    Raises:
        MalformedRequest: an entry is not what a rule can hold to.
    """
    if not allow and not deny:
        return None
    if len(allow) + len(deny) > _MOST_TARGETS:
        raise MalformedRequest(f"more than {_MOST_TARGETS} rules for the network; name ranges of addresses")
    if any("*" in entry for entry in (*allow, *deny)):
        raise MalformedRequest("rules hold to addresses here, so no name with * can be allowed: name each host")
    try:
        allowed, denied = (tuple(map(Target.parse, entries)) for entries in (allow, deny))
    except ValueError as e:
        raise MalformedRequest(f"rules for the network: {e}") from e
    if any(target.is_name for target in denied):
        raise MalformedRequest("a host name cannot be denied, for it has other addresses tomorrow: deny addresses")
    everything = any(target.host in EVERYTHING and target.port is None for target in denied)
    return Egress(allowed, denied, rest=bool(denied) and not everything)


async def connect(runtime: Runtime, view: BoxView, network: str, egress: Egress | None) -> None:
    """Give a box its network with these rules, or take it away.

    Rules change while it has no network, or while older ones hold.

    Raises:
        MalformedRequest: it was made without a network. EgressUnavailable and other InfrastructureError.
    """
    container_id, off = view.record.container_id, network == "none"
    if off:
        await runtime.connect(container_id, on=False)
    restricted = view.box.network != "none" and (view.box.allow_out or view.box.deny_out)
    if restricted or (egress and not off):
        await runtime.restrict(container_id, None if off else egress)
    if not off and not await runtime.connect(container_id, on=True):
        raise MalformedRequest(f"box {view.sid} was made without a network and cannot be given one; make another box")
