"""Decodes messages on the fast path, by templates learned from earlier messages."""
