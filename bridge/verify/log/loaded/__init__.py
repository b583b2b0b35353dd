"""Compares rows that are loaded into temporary tables."""
