"""Checks values against the columns that will hold them.  Pure."""
