"""Compiled functions over row images."""
