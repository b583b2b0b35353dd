"""What settings say of schema changes by the table that they come from."""
