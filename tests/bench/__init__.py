"""The benchmark: `uv run python -m tests.bench --help`."""

from tests.support import bytecode  # noqa: F401
