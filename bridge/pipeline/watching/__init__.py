"""What a running pipeline shows of itself: counts, status, heartbeat, and how it ended."""
