"""Every message of the tree of errors can be found on the page "when it stops", by the words that the operator sees."""

from __future__ import annotations

from typing import Final

from bridge.errors import SettingsError
from tests.support import usage_messages
from tests.support.error_messages import PAGE, entries, is_named, kinds, messages

FILLED_IN: Final = {
    "the target ...: ...": "the target does not answer",
    "the target ..., and ... s are over: ...": "the target does not answer",
}
"""Messages whose own words are too few to be found by, each with one of the entries that speak of it."""
OTHERS: Final = {"this is a bug in the bridge (exit code 70)"}
"""Entries of what is no error of the tree."""
LISTED: Final = [entry.partition(" (exit code")[0] for entry in entries() if entry not in OTHERS]


def test_every_class_has_messages() -> None:
    """So that an entry for each message is one for each class.  SettingsError lists what is wrong in words of each
    setting; the page speaks of wrong settings as a whole."""
    assert {one.kind for one in messages()} == {kind.__name__ for kind in kinds()} - {SettingsError.__name__}
    assert "### Wrong settings" in PAGE.read_text(encoding="utf-8")


def test_every_message_has_an_entry() -> None:
    """What a bridge that stops says stands in the first column of a table, as far as it is always the same."""
    missing = [
        f"{one.place}: {one.text}"
        for one in messages()
        if FILLED_IN.get(one.text) not in LISTED and not any(is_named(one.text, entry) for entry in LISTED)
    ]
    assert not missing, "add an entry to bridge/manual/when-it-stops.md for: " + "; ".join(missing)


def test_the_table_of_wrong_usage_is_made_from_the_source() -> None:
    """uv run python -m tests.support.usage_messages makes it anew."""
    assert usage_messages.shown() == usage_messages.table()


def test_every_entry_is_of_a_message() -> None:
    """An entry whose message is gone, or has other words now, leads nobody anywhere."""
    spoken = [one.text for one in messages()]
    waits = {"does not answer", "is read-only", "has too many connections", "does no work, as it says"}
    stale = [entry for entry in LISTED if not any(is_named(text, entry) for text in spoken)]
    assert {entry.removeprefix("the target ") for entry in stale} == {*waits, "has another transaction in the way"}


def test_the_words_of_an_entry_are_enough() -> None:
    """At least three words, or the whole message, so that a search for them finds this entry and not half of the
    page."""
    whole = {one.text for one in messages()}
    assert not [entry for entry in LISTED if len(entry.replace("...", "").split()) < 3 and entry not in whole]
