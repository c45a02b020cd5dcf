"""Pages for people, under /ui: rendered by the server, without external resources, all text treated as untrusted."""
