"""Every expected failure of the bridge.

BridgeError                 says what, where and what to do; has the exit code
+-- UnknownPipelineError    1   the target knows no pipeline of that name
+-- UsageError              2   wrong flags or settings, or a file that does not exist
|   +-- SettingsError       2   settings that are wrong, each in a line of its own
+-- StoppedError            3   a failure that a retry did not cure
|   +-- BadMessageError     3   a message that cannot be decoded
|   +-- SchemaChangeError   3   a schema change that the target refused, or that the policy does not allow
|   +-- ApplyError          3   rows that the target refused, or a target that is not what the log says
|   |   +-- AheadOfTargetError 3  of a table or column that the target lacks
|   |   +-- RefusedRowsError 3  single rows are the cause: they can be quarantined
|   +-- SourceError         3   Kafka cannot be read, or has lost messages that are still needed
|   |   +-- UnansweredError 3   Kafka does not answer, and may answer later
|   |       +-- RegistryAwayError 3  nor does the schema registry
|   +-- TargetError         3   the target cannot be reached or lacks something
+-- HeldError               4   a schema change waits for the operator
+-- OwnedError              5   another bridge owns the pipeline

`protocols.DecodeError` stands apart: it never leaves the decoder, which turns it into a BAD event.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, ClassVar


def counted(number: int, thing: str) -> str:
    """Returns the number with what is counted, such as `1 message` and `2,000 messages`.

    thing: its singular, whose plural ends with s.
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def meant(name: str, choices: Iterable[str]) -> str:
    """Returns `did you mean X? ` for the known name that is closest to a wrong one; "" where none is close."""
    names = list(choices)
    near = [n for n in names if name and n.startswith(name)] or get_close_matches(name, names, 1)
    return f"did you mean {near[0]}? " if near else ""


def few(names: Iterable[str], most: int = 5) -> str:
    """Returns the first of some names, and how many more there are."""
    listed = list(names)
    return ", ".join(listed[:most]) + (f" and {len(listed) - most:,} more" if len(listed) > most else "")


def fix_of_reading(error: OSError, path: object, otherwise: str) -> str:
    """Returns what to do about a file that cannot be read: where the user of the process lacks the right, who that is,
    and the command that gives it.

    otherwise: what to do in all other cases.
    """
    if error.errno not in {errno.EACCES, errno.EPERM}:
        return otherwise
    user = os.geteuid()
    return f"the bridge runs as uid {user}: chown {user} {path}, or the file outside that is mounted there; {otherwise}"


class BridgeError(Exception):
    """An expected failure.

    what: what happened, in one sentence, with the server's message if there is one.
    where: topic/partition/offset, table or commit ts, as far as known.
    fix: what the operator has to do.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what, self.where, self.fix = what, where, fix

    def __str__(self) -> str:
        parts = [self.what]
        if self.where:
            parts.append(f"at {self.where}")
        if self.fix:
            parts.append(f"fix: {self.fix}")
        return "; ".join(part.replace("\n", " ") for part in parts)

    def __reduce__(self) -> tuple[Any, ...]:
        """Tasks of Spark return errors: makes the same one in another process."""
        return _restored, (type(self), self.args, self.__dict__)

    @property
    def lines(self) -> tuple[str, ...]:
        """What is printed: one line for each thing that is wrong."""
        return (str(self),)


def _restored(kind: type[BridgeError], args: tuple[Any, ...], state: dict[str, Any]) -> BridgeError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class UnknownPipelineError(BridgeError):
    """The pipeline is unknown on the target."""

    exit_code = 1

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the target knows no pipeline {name!r}",
            fix="check --name and --target, and that its user may read the bridge's own database",
        )


class UsageError(BridgeError):
    """Wrong flags or settings."""

    exit_code = 2


class SettingsError(UsageError):
    """Settings that are wrong.  problems: one sentence each, with the key, what is allowed, and where it was given."""

    def __init__(self, problems: Iterable[str]) -> None:
        self._problems = tuple(problems)
        super().__init__("; ".join(self._problems))

    @property
    def lines(self) -> tuple[str, ...]:
        """The problems."""
        return self._problems


class StoppedError(BridgeError):
    """A failure that a retry did not cure."""


class BadMessageError(StoppedError):
    """A message that cannot be decoded."""


class SchemaChangeError(StoppedError):
    """A schema change that cannot run on the target."""


class ApplyError(StoppedError):
    """Rows that cannot be applied."""


class AheadOfTargetError(ApplyError):
    """Rows name a table or columns that the target lacks: a schema change that makes them may still come.

    table: schema and name of the table, as the messages name it.
    columns: what the target's table lacks, in lower case; empty where it lacks the table.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        fix: str = "",
        table: tuple[str, str] = ("", ""),
        columns: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(what, where=where, fix=fix)
        self.table, self.columns = table, columns


class RefusedRowsError(ApplyError):
    """The target refuses the values of a row, or does not have a row that has to be changed.

    table: schema and name of the table.
    code: the reason, as an `events.Code`.
    is_exact: whether `where` names the commit_ts of the row itself, not only that of its transaction.
    """

    def __init__(
        self, what: str, *, table: tuple[str, str], code: str, where: str = "", fix: str = "", is_exact: bool = False
    ) -> None:
        super().__init__(what, where=where, fix=fix)
        self.table, self.code, self.is_exact = table, code, is_exact


class SourceError(StoppedError):
    """The source cannot be read."""


class UnansweredError(SourceError):
    """The source did not answer, and may answer later.  trouble: what that means, in words that follow its name."""

    trouble: ClassVar[str] = "does not answer"


class RegistryAwayError(UnansweredError):
    """The schema registry did not answer, and may answer later."""

    trouble = "has a schema registry that does not answer"


class TargetError(StoppedError):
    """The target cannot be reached or lacks something."""


class HeldError(BridgeError):
    """A schema change waits for the operator."""

    exit_code = 4


class OwnedError(BridgeError):
    """Another bridge owns the pipeline."""

    exit_code = 5
