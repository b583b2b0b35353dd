"""The bridge's own tables on the target."""
