"""How a command ends: its exit code, and one line on stderr for whatever is not 0 (manual, operating).

0 done, 1 different or unknown, 2 wrong usage, 3 stopped by a failure, 4 something is left, 5 owned by another bridge:
from `errors`.  Beside them:

70   a failure that nobody expected: a bug.  Never 1, which would be an answer.
130  Ctrl-C.
141  whoever read stdout went away, as `head` does.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Final

import typer
from typer._click.exceptions import NoArgsIsHelpError
from typer.exceptions import TyperException

from bridge import console
from bridge.errors import BridgeError, StoppedError, UsageError
from bridge.foreign_text import without_secrets

BUG: Final = 70
INTERRUPTED: Final = 130
_READER_GONE: Final = 141
_MACHINE: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS, errno.EACCES, errno.EPERM}
)
"""No room, no memory, too many files, no right: such failures are the machine's, not the bridge's."""


def exit_code(command: Callable[[], object]) -> int:
    """Runs a command; says on stderr why it did not end well."""
    try:
        return _ended(command)
    except BridgeError as error:
        return _said(error)
    except NoArgsIsHelpError as error:
        error.show()
        return 2
    except TyperException as error:
        return _wrong_usage(error)
    except KeyboardInterrupt:
        console.note("interrupted")
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  # the last one who can say what happened
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            return _READER_GONE
        return _machine(error) if isinstance(error, MemoryError) or _number(error) in _MACHINE else _bug(error)
    finally:
        _give_stdout_up()


def _ended(command: Callable[[], object]) -> int:
    code = 0
    try:
        command()
    except typer.Exit as end:
        code = end.exit_code
    console.flush()
    return code


def _wrong_usage(error: TyperException) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "bridge"
    return _said(UsageError(error.format_message().rstrip("."), fix=f"see {command} --help"))


def _machine(error: Exception) -> int:
    what = str(error) or "no memory is left"
    return _said(StoppedError(f"the machine refuses: {what}", fix="see its disks, memory, limits and rights"))


def _said(error: BridgeError) -> int:
    console.note(str(error))
    return error.exit_code


def _bug(error: Exception) -> int:
    said = (without_secrets(str(error)).splitlines() or [""])[0]
    console.note(
        f"this is a bug in the bridge: {type(error).__name__}: {said}; fix: report it with the traceback that follows"
    )
    for line in _traceback(error):
        console.detail(line)
    return BUG


def _traceback(error: Exception) -> Iterator[str]:
    for part in traceback.format_exception(error):
        yield from map(without_secrets, part.splitlines())


def _number(error: Exception) -> int | None:
    return error.errno if isinstance(error, OSError) else None


def _nobody_reads() -> bool:
    """Whether stdout is a pipe whose reader is gone."""
    try:
        stdout = select.poll()
        stdout.register(sys.stdout.fileno(), select.POLLERR)
    except OSError:
        return False
    return bool(stdout.poll(0))


def _give_stdout_up() -> None:
    """Replaces stdout when it takes nothing more: otherwise Python would complain at its end, with an exit code of its
    own."""
    try:
        console.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
