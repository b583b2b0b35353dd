"""Debezium's change events, of TiCDC and of the connector for MySQL."""
