"""Values and the columns that are to hold them.  Pure."""
