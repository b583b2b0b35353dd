"""Net changes to statements.  Pure."""
