"""What many hosts would cost: measured on one, then counted and simulated."""
