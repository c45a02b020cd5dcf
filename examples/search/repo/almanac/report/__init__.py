"""Reports, as text and as files."""
