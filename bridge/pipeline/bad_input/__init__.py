"""Messages and rows that cannot be applied as they came."""
