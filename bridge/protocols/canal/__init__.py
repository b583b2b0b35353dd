"""Canal-JSON, of TiCDC and of Canal."""
