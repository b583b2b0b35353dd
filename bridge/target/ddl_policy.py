"""What the operator wants done with schema changes, by class; by default the target follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import NamedTuple

from bridge.errors import UsageError
from bridge.target.collations import SOURCES, CollationRules
from bridge.target.ddl_classes import ChangeClass


class Verdict(StrEnum):
    """ALLOW: it runs.  IGNORE: it is left out.  HOLD: it waits for the operator.  REFUSE: the bridge stops."""

    ALLOW = "allow"
    IGNORE = "ignore"
    HOLD = "hold"
    REFUSE = "refuse"


class Decision(NamedTuple):
    """What to do with a statement, and why."""

    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True)
class Policy:
    """default: of classes that `by_class` does not name."""

    default: Verdict = Verdict.ALLOW
    by_class: Mapping[ChangeClass, Verdict] = field(default_factory=dict)

    def decide(self, classes: Iterable[ChangeClass]) -> Decision:
        """The strictest verdict on the classes of a statement; one that is ignored in part only is held."""
        verdicts = {change: self.by_class.get(change, self.default) for change in classes}
        for verdict in (Verdict.REFUSE, Verdict.HOLD):
            named = [change.value for change, said in verdicts.items() if said is verdict]
            if named:
                return Decision(verdict, f"the settings ({verdict} in [ddl]) say so of: {', '.join(named)}")
        ignored = [change.value for change, said in verdicts.items() if said is Verdict.IGNORE]
        if not ignored:
            return Decision(Verdict.ALLOW)
        if len(ignored) == len(verdicts):
            return Decision(Verdict.IGNORE, f"the settings (ignore in [ddl]) say so of: {', '.join(ignored)}")
        return Decision(Verdict.HOLD, f"the settings ignore a part of it only ({', '.join(ignored)})")


@dataclass(frozen=True)
class DdlRules:
    """How schema changes are handled: the policy, the source whose defaults they mean, and collations."""

    policy: Policy = field(default_factory=Policy)
    source: str = "tidb"
    collations: CollationRules = field(default_factory=CollationRules)


def ddl_rules(
    *,
    default: str = "allow",
    allow: Iterable[str] = (),
    ignore: Iterable[str] = (),
    hold: Iterable[str] = (),
    refuse: Iterable[str] = (),
    source: str = "tidb",
    collations: Mapping[str, str] | None = None,
) -> DdlRules:
    """The rules from the words of the settings.  Raises UsageError for a class or source that is not known, and for a
    class in two lists."""
    by_class: dict[ChangeClass, Verdict] = {}
    lists = {Verdict.ALLOW: allow, Verdict.IGNORE: ignore, Verdict.HOLD: hold, Verdict.REFUSE: refuse}
    for verdict, names in lists.items():
        for name in names:
            change = _class_named(name)
            if by_class.setdefault(change, verdict) is not verdict:
                raise UsageError(
                    f"{name!r} is in two lists of [ddl]: {by_class[change]} and {verdict}", mend="leave it in one"
                )
    if source not in SOURCES:
        raise UsageError(f"ddl.source {source!r} is not known", mend=f"one of {', '.join(SOURCES)}")
    mapped = {name.lower(): collation.lower() for name, collation in (collations or {}).items()}
    return DdlRules(Policy(Verdict(default), by_class), source, CollationRules(SOURCES[source], mapped))


def _class_named(name: str) -> ChangeClass:
    known = [change.value for change in ChangeClass]
    if name.strip().lower() in known:
        return ChangeClass(name.strip().lower())
    near = get_close_matches(name.lower(), known, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UsageError(f"[ddl] knows no class {name!r}", mend=f"{hint}the classes are: {', '.join(known)}")
