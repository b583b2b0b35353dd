"""Turns net changes into statements.  Pure."""
