"""Reads the settings from a file, the environment and flags."""
