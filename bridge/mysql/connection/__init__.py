"""Addresses of servers, and sessions on them."""
