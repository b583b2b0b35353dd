"""The order of commit ts: boundaries tell which transactions are complete."""
