"""Turns row changes into SQL: order, net changes, types and statements.  Pure."""
