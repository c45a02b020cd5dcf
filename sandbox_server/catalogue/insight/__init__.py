"""Read-only queries over many sessions: lists, counts, groups, rates."""
