"""Asks schema registries."""
