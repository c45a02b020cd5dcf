"""Code search: the places that a gold patch changes, as names and lines of the tree before the patch."""
