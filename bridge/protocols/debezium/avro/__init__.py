"""Reads Debezium's change events in Avro, whose schemas a registry has."""
