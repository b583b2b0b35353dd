"""Compares rows by hashes of their literals, without loading them."""
