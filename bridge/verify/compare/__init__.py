"""Compares two servers' tables: checksums, key ranges, rows."""
