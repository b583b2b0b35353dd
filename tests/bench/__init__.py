"""The benchmark: `uv run python -m tests.bench --help`."""
