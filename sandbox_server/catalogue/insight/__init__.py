"""What the history tells of many sessions at once: lists, counts, groups, rates. Reads only."""
