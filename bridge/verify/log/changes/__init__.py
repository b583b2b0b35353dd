"""What schema changes of the log did to tables and rows."""
