"""Keeps what is made or fetched once for each user."""
