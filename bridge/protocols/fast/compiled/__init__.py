"""Compiled functions, which look at every byte of many messages."""
