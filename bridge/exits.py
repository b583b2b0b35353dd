"""Ends a command with its exit code and, unless that is 0, with one line on stderr (manual, operating).

From `errors`: 0 done, 1 different or unknown, 2 wrong usage, 3 stopped by a failure, 4 not completely done, 5 owned by
another bridge.  Besides:

70   an unexpected failure, which is a bug.  Never 1, which means "different" or "unknown".
130  Ctrl-C, or a second signal.
141  the reader of stdout has closed it, as `head` does.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import traceback
from collections.abc import Callable
from typing import Final

import typer
from typer._click.exceptions import NoArgsIsHelpError
from typer.exceptions import TyperException

from bridge import console
from bridge.console import without_secrets
from bridge.errors import BridgeError, StoppedError, UsageError

BUG: Final = 70
INTERRUPTED: Final = 130
_READER_GONE: Final = 141
_MACHINE_ERRORS: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS, errno.EACCES, errno.EPERM}
)
"""No space, no memory, too many open files, no permission: such failures are not bugs of the bridge."""


def exit_code(command: Callable[[], object]) -> int:
    """Runs a command and returns its exit code; prints on stderr why it failed."""
    try:
        return _run(command)
    except BridgeError as error:
        return _report(error)
    except NoArgsIsHelpError as error:
        error.show()
        return 2
    except TyperException as error:
        return _report_wrong_usage(error)
    except KeyboardInterrupt:
        console.note("interrupted")
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  # nothing above this could report it
        if isinstance(error, BrokenPipeError) and _is_reader_gone():
            return _READER_GONE
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _MACHINE_ERRORS):
            what = f"the machine refuses: {str(error) or 'no memory is left'}"
            return _report(StoppedError(what, fix="check its disks, memory, limits and permissions"))
        return _report_bug(error)
    finally:
        _replace_closed_stdout()


def _run(command: Callable[[], object]) -> int:
    code = 0
    try:
        command()
    except typer.Exit as end:
        code = end.exit_code
    console.flush()
    return code


def _report_wrong_usage(error: TyperException) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "bridge"
    return _report(UsageError(error.format_message().rstrip("."), fix=f"see {command} --help"))


def _report(error: BridgeError) -> int:
    for line in error.lines:
        console.failure(line)
    return error.exit_code


def _report_bug(error: Exception) -> int:
    reason = (without_secrets(str(error)).splitlines() or [""])[0]
    console.failure(
        f"this is a bug in the bridge: {type(error).__name__}: {reason}; fix: report it with the traceback that follows"
    )
    for line in "".join(traceback.format_exception(error)).splitlines():
        console.detail(without_secrets(line))
    return BUG


def _is_reader_gone() -> bool:
    """Tells whether stdout is a pipe whose reader has closed it."""
    try:
        stdout = select.poll()
        stdout.register(sys.stdout.fileno(), select.POLLERR)
    except OSError:
        return False
    return bool(stdout.poll(0))


def _replace_closed_stdout() -> None:
    """Replaces stdout when it can no longer be written.  Otherwise Python would print an error when it exits, and use
    an exit code of its own."""
    try:
        console.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
