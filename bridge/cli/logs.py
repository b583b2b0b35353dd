"""Configures the logs: on stderr, one line per event, as key=value or as JSON."""

from __future__ import annotations

import logging
import sys
from typing import Final

import orjson
import structlog
from structlog.typing import EventDict

from bridge import console
from bridge.console import redacted, visible

_STYLES: Final = {"warning": "\x1b[33m", "error": "\x1b[31m"}
"""The levels that have a colour."""
_RESET: Final = "\x1b[0m"


def configure_logs(form: str = "text", level: str = "info") -> None:
    """Sends the bridge's logs to stderr; loggers of libraries stay at WARNING.

    form: `text` or `json`, in which the notes of commands are events as well.  level: the lowest that is shown.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # The traceback that Py4J logs when the JVM has ended is dropped.  Nothing else uses the root logger itself.
    logging.getLogger().addFilter(lambda _: False)
    as_json = form == "json"
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _on_one_line,
            _json if as_json else _text_renderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    console.send_notes_to(_note if as_json else None)


def _text_renderer() -> structlog.dev.ConsoleRenderer:
    """Returns a renderer that has colours for warnings and errors only, and none where nobody would see them."""
    renderer = structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0, sort_keys=False)
    if console.has_colours(sys.stderr):
        styles = dict.fromkeys(renderer.get_default_level_styles(colors=False), "") | _STYLES
        level = structlog.dev.Column("level", structlog.dev.LogLevelColumnFormatter(styles, _RESET))
        renderer.columns = [level if column.key == "level" else column for column in renderer.columns]
    return renderer


def _json(_: object, __: str, event: EventDict) -> str:
    fields = {"timestamp": event.pop("timestamp"), "level": event.pop("level"), "event": event.pop("event"), **event}
    return orjson.dumps(fields, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _note(event: str, text: str) -> None:
    log = structlog.get_logger()
    (log.info if event == "note" else log.error)(event, text=text)


def _on_one_line(_: object, __: str, event: EventDict) -> EventDict:
    """Makes texts, which may come from messages and servers, safe to print on one line; other values are shown by
    repr."""
    return {name: visible(redacted(value)) if isinstance(value, str) else value for name, value in event.items()}
