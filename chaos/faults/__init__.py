"""Each file: faults of one kind, in `FAULTS`."""
