"""The HTTP port of a running pipeline: metrics, health, status, and a page for people."""
