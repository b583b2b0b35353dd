"""Verification against the messages."""
