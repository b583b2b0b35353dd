"""Decodes Debezium's change events, from TiCDC and from the connector for MySQL."""
