"""Writing rows, one transaction at a time."""
