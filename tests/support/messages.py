"""Messages of a test's own, as lines of a capture file."""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.support.captures import Line


def line(offset: int, message: dict[str, Any], *, partition: int = 0, topic: str | None = None) -> Line:
    """A message with JSON for its value."""
    value = base64.b64encode(json.dumps(message).encode()).decode()
    named = {} if topic is None else {"topic": topic}
    return {**named, "partition": partition, "offset": offset, "key": None, "value": value}
