"""Tells whether a session belongs to this node, to another live node, or to a dead node and may be taken over."""

from sandbox_server.errors import NodeUnreachable, OwnedElsewhere, StateUnavailable
from sandbox_server.records import SessionRecord
from sandbox_server.state.nodes import HOP, Hop, Liveness, Nodes


class Ownership:
    """Decides whether a session belongs to this node or may be taken over."""

    def __init__(self, nodes: Nodes, *, node: str) -> None:
        self._nodes = nodes
        self._node = node

    def is_here(self, record: SessionRecord) -> bool:
        """Whether the session belongs to this node."""
        return record.node == self._node

    async def check_owner_dead(self, record: SessionRecord) -> None:
        """Check that the session's node is dead, so that this node may take the session over.

        Raises:
            OwnedElsewhere: that node is or may be alive; the request must be forwarded to it.
            NodeUnreachable: forwarding was tried until the time limit. StateUnavailable.

        """
        liveness = await self._nodes.liveness(record.node)
        if liveness is Liveness.DEAD:
            return
        if HOP.get() is Hop.TRIED:
            if liveness is Liveness.UNKNOWN:
                raise StateUnavailable(
                    f"node {record.node} has no heartbeat in Redis, but this server has not seen Redis for long enough"
                    " to call it dead; send the request again"
                )
            raise NodeUnreachable(
                f"node {record.node}, which has session {record.sid}, does not answer from node {self._node} although"
                " it has a heartbeat; look at the network between the two and at SANDBOX_NODE_URL of the former"
            )
        raise OwnedElsewhere(record.node)
