"""By what a container of ours is known to be one, and whose."""

NODE, ROLE, SID, DEADLINE = "sandbox.node", "sandbox.role", "sandbox.sid", "sandbox.deadline"
TOKEN = "sandbox.token"
EGRESS = "sandbox.egress"
"""Its rules when it was made, as nft takes them; not there: it may reach whatever its network leads to."""
