"""Row changes to SQL: order, net changes, types and statements.  Pure."""
