"""Decodes Canal-JSON, as TiCDC and Canal write it."""
