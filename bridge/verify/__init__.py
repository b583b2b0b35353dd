"""Compares the target with the messages or with the upstream, and writes the statements that fix it (`bridge
verify`)."""
