"""The hacks suite: try to get rewards without a fix, masks and delays at will, against a private server."""
