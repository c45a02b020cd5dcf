"""Live state in Redis (sessions, leases, the journal, editor history), and the private Redis of one machine."""
