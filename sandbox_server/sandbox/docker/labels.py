"""Labels that identify our containers and their owner."""

NODE, ROLE, SID, DEADLINE = "sandbox.node", "sandbox.role", "sandbox.sid", "sandbox.deadline"
TOKEN = "sandbox.token"
ASSIGNED = "sandbox-session-"
"""The name of a container that belongs to another session than its label says: this, the sid, "-" and its own id."""
EGRESS = "sandbox.egress"
"""Its egress rules at creation, as nft reads them; absent if it is not restricted."""
