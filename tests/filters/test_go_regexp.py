"""Go's regular expressions, read as Go reads them: the answers are those of Go's own `regexp`, asked once."""

from __future__ import annotations

import warnings

import pytest

from bridge.filters.table_filter import GoRegexpError, compiled

MATCHES = [
    *((r"^db\d+$", "db12"), (r"^db\d{2,}$", "db12"), ("b", "db01"), ("^DB$", "db"), ("^é$", "É"), (r"\.", "a.b")),
    *((r"^\x41\x{e9}$", "aé"), (r"^\Qa.b*\E+$", "a.b**"), ("^[[:alpha:]]+$", "ab"), ("^[^[:digit:]x]$", "y")),
    *(
        (r"^[\D5]$", "5"),
        (r"^[^\D5]$", "6"),
        ("^[]a]+$", "]a"),
        ("^[a-]+$", "a-"),
        ("^[a&&b]+$", "&"),
        ("^[[a]+$", "[a"),
    ),
    *(("^a{,2}$", "a{,2}"), ("^a{01}$", "a{01}"), ("^a{2}$", "aa"), ("^a{0,2}?$", "aa"), ("^a|b$", "xb"), ("^}$", "}")),
    *(("(?i)^A|B$", "b"), ("(?m)^a$", "x\na"), ("^(?s:.)$", "\n"), ("(?U)^a+$", "aa"), ("^(?P<n>a)(?<m>b)$", "ab")),
    *((r"\bé", "aé"), (r"\Aab\z", "ab"), ("^(?i-s:A)$", "a"), ("^((?i)a|B)$", "b"), (r"^\w+$", "a_1"), ("^$", "")),
    *((r"^\pL$", "é"), (r"^\P{Greek}$", "a"), ("^a(?i)B$", "ab"), (r"^\07$", "\a"), ("^*", "")),
]
NO_MATCHES = [
    *((r"^db\d$", "db\u0661"), ("^db$", "db\n"), (r"^\w$", "é"), (r"^\s$", "\u00a0"), ("^a{,2}$", "aa"), (".", "\n")),
    *((r"^[^\D5]$", "5"), ("^[^a]$", "a"), (r"\Bb", "b"), ("(?-i)A", "a"), ("^[[:^alpha:]]$", "a"), (r"a\z", "a\n")),
]
REFUSED_AS_BY_GO = [
    *("(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "(?#a)", r"(a)\1", "a++", "a*+", "a**", "a{1}{2}", "a{1001}"),
    *("a{2,1}", r"\Z", r"\e", r"\é", "[a-", "[]", "[z-a]", r"[a-\d]", "[[:odd:]]", "(a", "a)", "*a", "(?", "a|*"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "name"), MATCHES)
def test_matches(pattern: str, name: str) -> None:
    """Anywhere in the name, without regard to case; without a warning of Python's."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled(pattern).search(name.lower())


@pytest.mark.parametrize(("pattern", "name"), NO_MATCHES)
def test_does_not_match(pattern: str, name: str) -> None:
    r"""Classes are ASCII, `$` is the end of the name, and a repetition is one only as Go writes it."""
    assert not compiled(pattern).search(name.lower())


@pytest.mark.parametrize("pattern", REFUSED_AS_BY_GO)
def test_refused(pattern: str) -> None:
    """What is none in Go: nothing is read as something else."""
    with pytest.raises(GoRegexpError):
        compiled(pattern)
