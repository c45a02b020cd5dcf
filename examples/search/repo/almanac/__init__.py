"""Days, the moon, and reports of them."""
