"""Labels that identify our containers and their owner."""

NODE, ROLE, SID, DEADLINE = "sandbox.node", "sandbox.role", "sandbox.sid", "sandbox.deadline"
TOKEN = "sandbox.token"
EGRESS = "sandbox.egress"
"""Its egress rules at creation, as nft reads them; absent if it is not restricted."""
