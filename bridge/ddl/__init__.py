"""Reads, classifies and rewrites the text of schema changes.  Pure."""
