r"""Translates regular expressions from Go's syntax (pkg.go.dev/regexp/syntax) to Python's.  It refuses those that
Python would read differently and that cannot be written in another way.

Only whether there is a match counts: groups capture nothing, and whether a repetition is greedy makes no difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

_LAST: Final = 0x10FFFF
_MOST_REPEATED: Final = 1000

Ranges = list[tuple[int, int]]
"""Ranges of code points, both ends included."""


class GoRegexpError(ValueError):
    """Raised for a text that Go would refuse, or that cannot be translated; the message says why."""


def _ranges(*spans: str) -> Ranges:
    return [(ord(span[0]), ord(span[-1])) for span in spans]


_PERL: Final = {
    "d": _ranges("09"),
    "s": _ranges("\t\n", "\f\r", " "),
    "w": _ranges("09", "AZ", "_", "az"),
}
_POSIX: Final = {
    "alnum": _ranges("09", "AZ", "az"),
    "alpha": _ranges("AZ", "az"),
    "ascii": _ranges("\0\x7f"),
    "blank": _ranges("\t", " "),
    "cntrl": _ranges("\0\x1f", "\x7f"),
    "digit": _ranges("09"),
    "graph": _ranges("!~"),
    "lower": _ranges("az"),
    "print": _ranges(" ~"),
    "punct": _ranges("!/", ":@", "[`", "{~"),
    "space": _ranges("\t\r", " "),
    "upper": _ranges("AZ"),
    "word": _ranges("09", "AZ", "_", "az"),
    "xdigit": _ranges("09", "AF", "af"),
}
_PLACES: Final = {"A": r"\A", "z": r"\Z", "b": r"(?a:\b)", "B": r"(?!(?a:\b))"}
_CONTROL: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_POSIX_NAME: Final = re.compile(r"\[:(\^?)(\w+):\]", re.ASCII)
_HEX: Final = re.compile(r"\\x(?:\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2}))")
_REPEAT: Final = re.compile(r"[*+?]|\{(0|[1-9][0-9]*)(?:,(0|[1-9][0-9]*)?)?\}")
_NAMED_GROUP: Final = re.compile(r"\(\?P?<(\w+)>", re.ASCII)
_FLAGS: Final = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")


class _OpenGroup(NamedTuple):
    """An open group.  multi_line: whether `$` means the end of a line; closing: the text that closes the group in
    Python."""

    multi_line: bool
    closing: str


def translated(pattern: str) -> str:
    """Gives the pattern for Python's `re`, without flags of its own.  Raises GoRegexpError."""
    return _PatternTranslator(pattern).run()


def compiled(pattern: str) -> re.Pattern[str]:
    """Gives the pattern, without regard to case.  Raises GoRegexpError."""
    try:
        return re.compile(translated(pattern), re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise GoRegexpError(f"it cannot be used here: {error}") from error


class _PatternTranslator:
    def __init__(self, pattern: str) -> None:
        self._pattern, self._at = pattern, 0
        self._groups = [_OpenGroup(multi_line=False, closing="")]
        self._made: list[str] = []
        self._may_repeat = self._may_set_flags = False
        self._readers: Mapping[str, Callable[[], None]] = {
            "\\": self._escape,
            "[": self._class,
            "(": self._open,
            ")": self._close,
        }

    def run(self) -> str:
        self._may_set_flags = True
        while self._at < len(self._pattern):
            self._next()
        if len(self._groups) > 1:
            raise GoRegexpError("a ( is not closed")
        return "".join(self._made) + self._groups[0].closing

    def _next(self) -> None:
        char = self._pattern[self._at]
        readers: dict[str, Callable[[], None]] = {
            "\\": self._escape,
            "[": self._class,
            "(": self._open,
            ")": self._close,
        }
        if char in readers:
            readers[char]()
        elif repeat := _REPEAT.match(self._pattern, self._at):
            self._repeat(repeat)
        elif char == "|":
            self._put("|", 1, may_repeat=False)
        elif char in "^.":
            self._put(char, 1)
        elif char == "$":
            self._put("$" if self._groups[-1].multi_line else r"\Z", 1)
        else:
            self._put(re.escape(char), 1)

    def _put(self, made: str, length: int, *, may_repeat: bool = True) -> None:
        self._made.append(made)
        self._at += length
        self._may_repeat, self._may_set_flags = may_repeat, False

    def _repeat(self, repeat: re.Match[str]) -> None:
        low, high = repeat.groups()
        if not self._may_repeat:
            raise GoRegexpError(f"{repeat[0]!r} has nothing to repeat before it, or follows another repetition")
        if max(int(low or 0), int(high or 0)) > _MOST_REPEATED or (high is not None and int(high) < int(low)):
            raise GoRegexpError(f"{repeat[0]!r} is not a valid repetition (at most {_MOST_REPEATED} times)")
        lazy = self._pattern.startswith("?", repeat.end())
        self._put(repeat[0], len(repeat[0]) + lazy, may_repeat=False)

    # --- groups

    def _open(self) -> None:
        rest = self._pattern[self._at :]
        if named := _NAMED_GROUP.match(rest):
            self._push("(?:", len(named[0]))
        elif flags := _FLAGS.match(rest):
            self._flags(flags)
        elif rest.startswith("(?"):
            raise GoRegexpError(f"Go has no {rest[:4]!r}: it has no lookaround, no conditions and no comments")
        else:
            self._push("(?:", 1)

    def _push(self, opening: str, length: int, *, multi_line: bool | None = None) -> None:
        inherited = self._groups[-1].multi_line
        self._put(opening, length, may_repeat=False)
        self._groups.append(_OpenGroup(inherited if multi_line is None else multi_line, ")"))
        self._may_set_flags = True

    def _flags(self, flags: re.Match[str]) -> None:
        on, off, end = flags[1].replace("U", ""), (flags[2] or "").replace("U", ""), flags[3]
        if set(on) & set(off) or (end == ")" and not (flags[1] or flags[2])):
            raise GoRegexpError(f"{flags[0]!r} is not a group of flags")
        multi_line = "m" in on or ("m" not in off and self._groups[-1].multi_line)
        opening = f"(?{''.join(sorted(set(on)))}{'-' * bool(off)}{''.join(sorted(set(off)))}:"
        if end == ":":
            self._push(opening, len(flags[0]), multi_line=multi_line)
            return
        if not self._may_set_flags:
            raise GoRegexpError(f"{flags[0]!r} is understood only at the beginning of the expression or of a group")
        within = self._groups[-1]
        self._groups[-1] = _OpenGroup(multi_line, within.closing + ")")
        self._put(opening, len(flags[0]), may_repeat=False)
        self._may_set_flags = True

    def _close(self) -> None:
        if len(self._groups) == 1:
            raise GoRegexpError("a ) has no ( before it")
        self._put(self._groups.pop().closing, 1)

    # --- characters

    def _escape(self) -> None:
        following = self._pattern[self._at + 1 : self._at + 2]
        if following in ("p", "P"):
            raise GoRegexpError(r"\p (Unicode's classes) is not understood here: name the characters, as in [a-zé]")
        if following == "Q":
            self._quoted()
        elif following.lower() in _PERL:
            self._put(_as_class([(_PERL[following.lower()], following.isupper())], is_negated=False), 2)
        elif following in _PLACES:
            self._put(_PLACES[following], 2)
        else:
            char, length = self._escaped()
            self._put(re.escape(char), length)

    def _quoted(self) -> None:
        text, end, _ = self._pattern[self._at + 2 :].partition(r"\E")
        self._at += 2 + len(end)
        for char in text:
            self._put(re.escape(char), 1)

    def _escaped(self) -> tuple[str, int]:
        """Gives the character that an escape sequence at this place stands for, and the length of the sequence."""
        following = self._pattern[self._at + 1 : self._at + 2]
        if found := _HEX.match(self._pattern, self._at):
            code = int(found[1] or found[2], 16)
            if code <= _LAST:
                return chr(code), len(found[0])
        elif following in _CONTROL:
            return _CONTROL[following], 2
        elif following and following.isascii() and not following.isalnum():
            return following, 2
        raise GoRegexpError(f"{self._pattern[self._at : self._at + 2]!r} is not a known escape sequence")

    def _class(self) -> None:
        start = self._at
        self._at += 1
        is_negated = self._pattern.startswith("^", self._at)
        self._at += is_negated
        items: list[tuple[Ranges, bool]] = []
        while not (items and self._pattern.startswith("]", self._at)):
            if self._at >= len(self._pattern):
                raise GoRegexpError(f"the [ of {self._pattern[start:]!r} is not closed")
            items.append(self._class_item())
        self._put(_as_class(items, is_negated=is_negated), 1)

    def _class_item(self) -> tuple[Ranges, bool]:
        """Reads one item of a class: its ranges of characters, and whether it means all other characters."""
        if posix := _POSIX_NAME.match(self._pattern, self._at):
            if posix[2] not in _POSIX:
                raise GoRegexpError(f"there is no class {posix[0]!r}")
            self._at += len(posix[0])
            return _POSIX[posix[2]], bool(posix[1])
        following = self._pattern[self._at + 1 : self._at + 2]
        if self._pattern[self._at] == "\\" and following.lower() in _PERL:
            self._at += 2
            return _PERL[following.lower()], following.isupper()
        low = self._class_character()
        if not self._pattern.startswith("-", self._at) or self._pattern.startswith("-]", self._at):
            return [(low, low)], False
        self._at += 1
        high = self._class_character()
        if high < low:
            raise GoRegexpError(f"the range {chr(low)}-{chr(high)} is empty")
        return [(low, high)], False

    def _class_character(self) -> int:
        if self._at >= len(self._pattern):
            raise GoRegexpError("a [ is not closed")
        char, length = self._pattern[self._at], 1
        if char == "\\":
            char, length = self._escaped()
        self._at += length
        return ord(char)


def _as_class(items: list[tuple[Ranges, bool]], *, is_negated: bool) -> str:
    """Makes a class in Python's syntax.  Python has no classes within classes, so negated classes become alternatives
    beside the rest."""
    plain = [span for ranges, is_other in items if not is_other for span in ranges]
    parts = [_brackets(plain)] if plain else []
    parts += [_brackets(ranges, "^") for ranges, is_other in items if is_other]
    if len(parts) > 1 or (is_negated and not plain):
        either = "|".join(parts)
        return f"(?:(?!{either})(?s:.))" if is_negated else f"(?:{either})"
    return _brackets(plain, "^") if is_negated else parts[0]


def _brackets(ranges: Ranges, sign: str = "") -> str:
    return f"[{sign}{''.join(f'{_code(low)}-{_code(high)}' for low, high in ranges)}]"


def _code(point: int) -> str:
    return f"\\U{point:08x}"
