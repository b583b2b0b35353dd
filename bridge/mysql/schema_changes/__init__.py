"""Running schema changes on the target, each exactly once."""
