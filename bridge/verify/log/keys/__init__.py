"""Keys of tables within the log."""
