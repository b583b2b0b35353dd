"""The replication pipeline: from a source's messages to target transactions."""
