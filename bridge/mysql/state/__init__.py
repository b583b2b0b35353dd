"""Reads and writes the bridge's own tables on the target."""
