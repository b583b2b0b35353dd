"""A replication bridge from change messages in Kafka to a MySQL-compatible target."""
