"""What `bridge help` and `bridge config example` show: pages of the manual, and settings files to begin with."""

from __future__ import annotations

import re
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Final

from bridge.errors import UsageError

TOPICS: Final = {
    "first-day": "from the installed package to a target that is known to be right, with real output",
    "guarantees": "what the target shows at every moment, for each protocol and mode, and the honest limits",
    "protocols": "the formats that are read, what each of them needs, and topics without boundaries",
    "operating": "check, run, replay, status, inspect, reset: the status line, the exit codes, a day with the bridge",
    "starting": "a pipeline from a copy of the upstream: dumps, snapshots, and a start without a moment",
    "watching": "the status page, metrics, health, and a consumer group for Kafka's tools",
    "routing": "other names on the target, and events that are left out",
    "when-it-stops": "what each failure means, and what to do",
    "quarantine": "messages and rows that were quarantined, and how they are tried again",
    "schema-changes": "what happens to DDL: translation, policy, and the changes that wait for you",
    "verify": "is the target right? comparing it with the messages, or with the upstream itself",
    "deployment": "accounts, TLS, secrets, containers, Spark clusters",
    "performance": "how fast it is, what it costs, how it grows, and how to measure that yourself",
    "other-jobs": "change events as rows in your own Spark jobs",
    "moving": "from TiCDC's MySQL sink, Canal's adapter or a JDBC sink, step by step, and the way back",
    "comparison": "what these and a plain Spark job guarantee, and where each is better than the bridge",
    "logs": "every line of the log, its forms, and Spark's own",
    "internals": "how it works, its threads and its tables, and the decisions behind them",
    "settings": "every setting, with its default, its flag and its environment variable",
    "changes": "what changed, what a change of version asks of you, and the way back",
}
"""The pages, and what each of them tells."""

_COMMENT: Final = re.compile(r"^<!--.*?-->\n", re.MULTILINE)
_PICTURE: Final = re.compile(r"!\[([^\]]*)\]\((?:\.\./)*([^)]*)\)")
_PAGE: Final = re.compile(r"\[([^\]]*)\]\(([a-z-]+)\.md(?:#[^)]*)?\)")
_LINK: Final = re.compile(r"\[([^\]]*)\]\((?!https?:)(?:\.\./)*([^)#]*)(?:#[^)]*)?\)")


def page(topic: str) -> str:
    """Returns a page as Markdown whose links make sense in a terminal; UsageError for an unknown topic."""
    if topic not in TOPICS:
        near = get_close_matches(topic.lower(), TOPICS, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UsageError(f"the manual has no page {topic!r}", fix=f"{hint}the pages are: {', '.join(TOPICS)}")
    return for_terminal((files("bridge") / "manual" / f"{topic}.md").read_text(encoding="utf-8"))


def for_terminal(text: str) -> str:
    """Removes the comments of a page and replaces its links: those to other pages with the command that prints them,
    those to pictures and files with their path in the repository."""
    text = _PICTURE.sub(r"(\1: `\2` in the repository)", _COMMENT.sub("", text))
    text = _PAGE.sub(lambda link: f"{link[1]} (`bridge help {link[2]}`)" if link[2] in TOPICS else link[0], text)
    return _LINK.sub(r"\1 (`\2` in the repository)", text)


_SHIPPED: Final = Path(__file__).parent.parent / "conf"
_IN_THE_REPOSITORY: Final = Path(__file__).parent.parent.parent / "conf"


def examples() -> dict[str, str]:
    """Returns the examples: by name, the first sentence of each."""
    return {path.stem: _first_sentence(path) for path in sorted(_folder().glob("*.toml"))}


def example(name: str) -> str:
    """Returns an example; UsageError for a name that none has."""
    known = examples()
    if name not in known:
        near = [each for each in known if each.startswith(name)] or get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"there is no example {name!r}", fix=f"{hint}there are {', '.join(known)}")
    return (_folder() / f"{name}.toml").read_text(encoding="utf-8")


def _folder() -> Path:
    return _SHIPPED if _SHIPPED.is_dir() else _IN_THE_REPOSITORY


def _first_sentence(path: Path) -> str:
    comment = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("# "):
            break
        comment.append(line.removeprefix("# "))
    return " ".join(comment).partition(".  ")[0].rstrip(".")
