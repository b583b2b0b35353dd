"""Verification against the upstream database."""
