"""Decodes TiCDC's Open Protocol."""
