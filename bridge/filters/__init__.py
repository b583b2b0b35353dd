"""Which tables are replicated, and which databases are never written to."""
