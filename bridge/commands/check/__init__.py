"""`bridge check`: looks for everything that would stop a pipeline; one line each, with the fix."""
