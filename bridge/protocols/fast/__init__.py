"""Decodes messages on the fast path, by forms learned from earlier messages."""
