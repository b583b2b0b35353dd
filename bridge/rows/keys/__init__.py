"""Finds what row changes do to the keys of rows.  Pure."""
