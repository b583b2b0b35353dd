"""What a running pipeline reports: counts, status, heartbeat, and how it ended."""
