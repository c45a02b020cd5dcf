"""Whose a session is: this node's, another living one's, or nobody's any more."""

from sandbox_server.errors import NodeUnreachable, OwnedElsewhere, StateUnavailable
from sandbox_server.records import SessionRecord
from sandbox_server.state.nodes import HOP, Hop, Liveness, Nodes


class Ownership:
    """Sends requests to the node that has their session."""

    def __init__(self, nodes: Nodes, *, node: str) -> None:
        self._nodes = nodes
        self._node = node

    def is_here(self, record: SessionRecord) -> bool:
        """It is this node's."""
        return record.node == self._node

    async def nobodys(self, record: SessionRecord) -> None:
        """Return only if the node of the session is dead, so that whoever is asked for it may take it over.

        Raises:
            OwnedElsewhere: it lives, or may live: the request is to be tried there.
            NodeUnreachable: that was tried for as long as there was hope. StateUnavailable.

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
