"""The hacks suite: rewards taken without a fix, masks and delays at will, tried against a server of one's own."""
