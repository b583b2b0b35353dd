"""The MySQL side: everything that holds a connection to the target, and the rules it applies."""
