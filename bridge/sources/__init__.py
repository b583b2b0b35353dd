"""Where messages come from: Kafka and capture files."""
