"""Statements about something else than tables."""
