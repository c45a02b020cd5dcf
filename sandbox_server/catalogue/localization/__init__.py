"""Code search: what a gold patch says must be found, told in terms of the tree before it."""
