"""Rows that rows of other partitions have overtaken."""
