"""Connects to MySQL-compatible servers, and asks what a server tells about itself."""
