"""Several connections that write one step (`parallel` consistency)."""
