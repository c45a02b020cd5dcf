"""The durable truth in SQL: which instances there are, and what happened to every session."""
