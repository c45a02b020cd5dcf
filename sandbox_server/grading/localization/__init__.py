"""Code search: answers read leniently, scored by composed rewards. Pure; nothing here runs a container."""
