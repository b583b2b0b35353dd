"""Schema changes: reading, classifying and rewriting their text.  Pure."""
