"""MySQL-compatible servers: connections, and what a server tells about itself."""
