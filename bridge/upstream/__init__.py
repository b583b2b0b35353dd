"""The upstream itself, as far as rows are read back from it."""
