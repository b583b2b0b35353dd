"""Writes row changes and runs schema changes on the target."""
