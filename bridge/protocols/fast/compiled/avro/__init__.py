"""Writes messages in Avro as JSON."""
