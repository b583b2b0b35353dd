"""Spark: sessions, processes, and row changes that stay on executors."""
