"""Pages for people, under /ui: server-rendered, everything from this host, every text a stranger's."""
