"""Decides by its classes and the settings what happens to a schema change; by default the target follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from bridge.ddl.by_table.event_filters import EventFilter, ignored_classes
from bridge.ddl.classes import ChangeClass, StatementKind
from bridge.ddl.collation_tables import SOURCES, UNKNOWN_DEFAULTS, CollationRules, is_tidb
from bridge.ddl.parser import Classified
from bridge.errors import UsageError, meant
from bridge.events import Kind
from bridge.filters.routes import Routes
from bridge.filters.table_filter import DEFAULT_SCHEMA, ReservedSchemas, TableFilter
from bridge.model import TableName

_VIEW: Final = (
    "the view may read what the filter leaves out: approve it if it shows no more than is replicated; ddl.ignore leaves"
    " all views out"
)


class Verdict(StrEnum):
    """What happens to a schema change.  ALLOW: it runs.  IGNORE: it is left out.  HOLD: it waits for the
    operator.  REFUSE: the bridge stops."""

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
    """The verdicts of the settings.  default: for classes that `by_class` does not name."""

    default: Verdict = Verdict.ALLOW
    by_class: Mapping[ChangeClass, Verdict] = field(default_factory=dict)

    def decide(self, classes: Iterable[ChangeClass]) -> Decision:
        """Gives the strictest verdict on the classes of a statement.  A statement is held when only a part of it is
        ignored.  What changes nothing is allowed, whatever the settings say."""
        changes = (change for change in classes if change is not ChangeClass.NOTHING)
        verdicts = {change: self.by_class.get(change, self.default) for change in changes}
        for verdict in (Verdict.REFUSE, Verdict.HOLD):
            names = [change.value for change, setting in verdicts.items() if setting is verdict]
            if names:
                return Decision(verdict, f"the settings {verdict} {', '.join(names)} (ddl.{verdict})")
        ignored = [change.value for change, setting in verdicts.items() if setting is Verdict.IGNORE]
        if not ignored:
            return Decision(Verdict.ALLOW)
        if len(ignored) == len(verdicts):
            return Decision(Verdict.IGNORE, f"the settings ignore {', '.join(ignored)} (ddl.ignore)")
        return Decision(Verdict.HOLD, f"the settings ignore only a part of it ({', '.join(ignored)})")


@dataclass(frozen=True)
class DdlRules:
    """Tells how schema changes are handled: the policy, the source whose defaults they use, and collations.

    tables: which tables are replicated.  own_schema: the bridge's own database.
    event_filters: what is left out of some tables.  routes: the names of tables on the target.
    timezone: the zone of the upstream's sessions that run schema changes, None where it is not known.
    """

    policy: Policy = field(default_factory=Policy)
    source: str = "tidb"
    collations: CollationRules = field(default_factory=CollationRules)
    tables: TableFilter = field(default_factory=TableFilter)
    own_schema: str = DEFAULT_SCHEMA
    event_filters: tuple[EventFilter, ...] = ()
    routes: Routes = field(default_factory=Routes)
    timezone: str | None = None

    def sent_by(self, source: str) -> DdlRules:
        """Gives the rules for messages of this source: what is made from a binlog never means TiDB's defaults.

        source: "mariadb", or "mysql" where the messages tell no more; "" for other messages.
        """
        if not source or not self.is_from_tidb:
            return self
        defaults = SOURCES.get(source, UNKNOWN_DEFAULTS)
        return replace(self, source=source, collations=CollationRules(defaults, self.collations.mapped))

    @property
    def is_from_tidb(self) -> bool:
        """Whether the source is TiDB, as far as the settings say."""
        return is_tidb(self.source)

    def decide(self, change: Classified, statement: str = "") -> Decision:
        """Decides on a change by the settings.  One that is half outside of the filter is held, and so is every view
        where there is a filter, since nothing tells what it reads."""
        decision = self._filtered(change, statement) or self.policy.decide(change.classes)
        if decision.verdict is not Verdict.ALLOW:
            return decision
        left_out = [name for name in change.tables if not self.tables(*name)]
        if left_out and len(left_out) < len(change.tables):
            names = ", ".join(map(str, dict.fromkeys(left_out)))
            return Decision(Verdict.HOLD, f"it changes tables inside of the filter and outside of it: {names}")
        is_view = change.kind is StatementKind.CREATE_VIEW
        return Decision(Verdict.HOLD, _VIEW) if is_view and self.tables.rules else decision

    def _filtered(self, change: Classified, statement: str) -> Decision | None:
        """Gives the verdict of the event filters; None when they leave nothing of the change out."""
        ignored, unclear = ignored_classes(self.event_filters, change, statement)
        if unclear:
            return Decision(Verdict.HOLD, unclear)
        if not ignored:
            return None
        names = ", ".join(change_class.value for change_class in change.classes if change_class in ignored)
        if ignored.issuperset(change.classes):
            return Decision(Verdict.IGNORE, f"an event filter leaves out: {names}")
        return Decision(Verdict.HOLD, f"an event filter leaves out only a part of it ({names})")

    def keeps_gone(self, target: TableName) -> bool:
        """Tells whether rows may stay in a table of the target that are gone upstream, or are another shard's."""
        kinds = {Kind.UPDATE, Kind.DELETE}
        stays = [event_filter.tables for event_filter in self.event_filters if event_filter.rows & kinds]
        return self.routes.is_merged(target) or any(
            tables(*name) for name in self.routes.sources(target) for tables in stays
        )

    def forbids(self, change: Classified) -> str:
        """Tells why not even the operator may let a change run; "" when the operator may."""
        schemas = (*(mention.table.schema for mention in change.mentions), change.database)
        is_reserved = any(map(ReservedSchemas(self.own_schema).why, schemas))
        return "it touches the bridge's own tables" if is_reserved else ""


def ddl_rules(
    *,
    default: str = "allow",
    allow: Iterable[str] = (),
    ignore: Iterable[str] = (),
    hold: Iterable[str] = (),
    refuse: Iterable[str] = (),
    source: str = "tidb",
    defaults: Mapping[str, str] | None = None,
    collations: Mapping[str, str] | None = None,
    tables: TableFilter = TableFilter(),  # noqa: B008  # immutable
    event_filters: tuple[EventFilter, ...] = (),
    routes: Routes = Routes(),  # noqa: B008  # immutable
    timezone: str | None = None,
) -> DdlRules:
    """Makes the rules from the settings, the filter of tables, the event filters and the routes.

    Raises UsageError for a class or source that is not known, and for a class in two lists.
    """
    by_class: dict[ChangeClass, Verdict] = {}
    lists = {Verdict.ALLOW: allow, Verdict.IGNORE: ignore, Verdict.HOLD: hold, Verdict.REFUSE: refuse}
    for verdict, names in lists.items():
        for name in names:
            change = _change_class(name)
            if by_class.setdefault(change, verdict) is not verdict:
                raise UsageError(
                    f"{name!r} is in two lists of [ddl]: {by_class[change]} and {verdict}", fix="leave it in one"
                )
    if source not in SOURCES:
        raise UsageError(f"ddl.source {source!r} is not known", fix=f"one of {', '.join(SOURCES)}")
    if defaults and is_tidb(source):
        raise UsageError("ddl.defaults are those of a MySQL or MariaDB", fix="say which with ddl.source")
    for name, collation in (defaults or {}).items():
        if name != "server" and not collation.lower().startswith(f"{name.lower()}_"):
            raise UsageError(f"ddl.defaults.{name} is no character set of {collation}", fix="server, or as utf8mb4")
    mapped = {name.lower(): collation.lower() for name, collation in (collations or {}).items()}
    return DdlRules(
        Policy(Verdict(default), by_class),
        source,
        CollationRules(SOURCES[source].but(defaults or {}), mapped),
        tables,
        event_filters=event_filters,
        routes=routes,
        timezone=timezone,
    )


def _change_class(name: str) -> ChangeClass:
    names = [change.value for change in ChangeClass]
    if name.strip().lower() in names:
        return ChangeClass(name.strip().lower())
    hint = meant(name.lower(), names)
    raise UsageError(f"[ddl] knows no class {name!r}", fix=f"{hint}the classes are: {', '.join(names)}")
