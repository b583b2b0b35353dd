"""Converts what all protocols share: values, types, times, row images."""
