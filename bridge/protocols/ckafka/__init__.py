"""Decodes CKafka's official format 1."""
