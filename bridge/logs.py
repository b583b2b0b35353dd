"""Configures the logs: key=value lines on stderr."""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import EventDict

from bridge.foreign_text import redacted, visible


def configure_logs(level: int = logging.INFO) -> None:
    """Sends the bridge's logs to stderr; loggers of libraries stay at WARNING."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_drop)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _on_one_line,
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0, sort_keys=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def _on_one_line(_: object, __: str, event: EventDict) -> EventDict:
    """Makes texts, which may come from messages and servers, safe to print on one line; other values are shown by
    repr."""
    return {name: visible(redacted(value)) if isinstance(value, str) else value for name, value in event.items()}


def _drop(_: logging.LogRecord) -> bool:
    """Drops the traceback that Py4J logs when the JVM has ended.  Nothing else uses the root logger itself."""
    return False
