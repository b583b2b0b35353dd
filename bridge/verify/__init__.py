"""`bridge verify`: compares the target with the messages or the upstream, and writes the statements that fix it."""
