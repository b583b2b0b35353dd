"""Rewrites a schema change for the target: rules make edits, and the edits make the new text.

The output is the input with spans replaced, so text that no rule understands passes unchanged.  The outcome is
classified again: a rewrite may leave something out, but must never touch other tables than the statement did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from bridge.ddl.by_table.routing import routed_statement
from bridge.ddl.classes import ChangeClass, StatementKind, split_at_commas
from bridge.ddl.clauses import StatementParts, outer, span_of, statement_parts
from bridge.ddl.lexer import Token, open_comments
from bridge.ddl.parser import Classified, Refused, classify
from bridge.ddl.rule import Edit, Feature, OmittedObject, RewriteRule, Site, UnsupportedError
from bridge.ddl.rules import (
    charsets,
    column_definitions,
    constraints,
    other_values,
    table_options,
    tables,
    tidb,
    time_zones,
)

RULES: Final[tuple[tuple[RewriteRule, Feature | None], ...]] = (
    (tables.recover, Feature.TIDB_SYNTAX),
    (tables.versions, Feature.TIDB_SYNTAX),
    (tables.global_temporary, Feature.TIDB_SYNTAX),
    (tables.dropped_unmade, None),
    (tables.possible_names, Feature.TIDB_SYNTAX),
    (tidb.comments, Feature.TIDB_SYNTAX),
    (tidb.columns, Feature.TIDB_SYNTAX),
    (tidb.options, Feature.TIDB_SYNTAX),
    (tidb.shard_indexes, Feature.TIDB_SYNTAX),
    (tables.names_case, None),
    (tables.current_database, None),
    (constraints.invisible_indexes, Feature.INVISIBLE_INDEX),
    (constraints.foreign_indexes, None),
    (constraints.unmade_indexes, None),
    (table_options.never_run, None),
    (table_options.if_exists, None),
    (table_options.options, None),
    (constraints.inline_references, None),
    (constraints.checks, None),
    (time_zones.by_mode, None),
    (other_values.refuse_other_values, None),
    (time_zones.local_times, None),
    (tables.hashed_partitions, None),
    (column_definitions.generated_null, Feature.MYSQL_SYNTAX),
    (column_definitions.json_arrows, Feature.MYSQL_SYNTAX),
    (column_definitions.json_nulls, None),
    (column_definitions.compressed, Feature.MARIADB_SYNTAX),
    (column_definitions.vectors, Feature.VECTOR_TEXT),
    (tables.view_rights, None),
    (tables.hints, None),
    (tables.engines, Feature.TIDB_SYNTAX),
    (column_definitions.sequence_defaults, None),
    (column_definitions.renamed_columns, Feature.RENAME_COLUMN),
    (column_definitions.expression_defaults, None),
    (charsets.charsets, None),
    (charsets.short_forms, None),
    (charsets.names, None),
    (charsets.defaults, None),
    (charsets.databases, None),
    (charsets.tables, None),
    (charsets.introducers, None),
)
"""The rules in their order; one with a feature is for targets that lack it."""

_OPENED: Final = "executable comments opened, as the upstream ran them"
_ANSI: Final = "names in double quotes are in backticks, as the upstream's session had ANSI_QUOTES"


class RewriteStep(NamedTuple):
    """One change that a rule made."""

    before: str
    after: str
    why: str


@dataclass(frozen=True)
class Rewritten:
    """A statement as the target understands it.

    text: the statement; None when nothing of it is left to run.
    classified: what it does there, by the names of the target.
    left_out: what the target does not get.
    source: what it does by the names of the upstream; None when these are the same.
    local: what of it depends on the zone of the upstream's session, "" when nothing does.
    """

    text: str | None
    classified: Classified
    steps: tuple[RewriteStep, ...] = ()
    left_out: tuple[OmittedObject, ...] = ()
    source: Classified | None = None
    local: str = ""

    @property
    def sql(self) -> str:
        """The statement; "" when nothing of it is left to run."""
        return self.text or ""

    @property
    def upstream(self) -> Classified:
        """What it does by the names of the upstream."""
        return self.source or self.classified


def rewrite(statement: str, schema: str, site: Site) -> Rewritten | Refused:
    """Rewrites `statement` for the target of `site`, with `schema` as the current database.

    Gives Refused for a text that is not one schema change.  Raises UnsupportedError where the target has no equivalent,
    and RoutingError where the routes do not say what a name means.
    """
    tidb = site.target.has(Feature.TIDB_SYNTAX)
    classified = classify(statement, schema, tidb=tidb)
    if isinstance(classified, Refused):
        return classified
    text = open_comments(statement, mariadb=site.source == "mariadb")
    steps = [RewriteStep(statement, text, _ANSI if '"' in statement and '"' not in text else _OPENED)]
    steps = steps if text != statement else []
    reread = classify(text, schema, tidb=tidb)
    if isinstance(reread, Refused):
        return reread
    if reread.classes == (ChangeClass.NOTHING,):
        return Rewritten(None, classified, (*steps, RewriteStep(text, "", "it holds no action for this target")))
    routed = routed_statement(text, reread, schema, site.routes, tidb=tidb)
    source = None
    if routed.text != text or routed.schema != schema:
        steps += [RewriteStep(text[edit.start : edit.end], edit.text, edit.why) for edit in routed.edits]
        text, schema, source = routed.text, routed.schema, classified
        reread = classify(text, schema, tidb=tidb, is_certain=True)
        assert isinstance(reread, Classified), text  # it was classified when it was routed
        classified = reread
    parts = statement_parts(text, reread, tidb=tidb)
    rules = [rule for rule, feature in RULES if feature is None or not site.target.has(feature)]
    edits = [edit for rule in rules for edit in rule(parts, site) or ()]
    result, edit_steps = _apply(parts, edits)
    left_out = tuple(edit.omission for edit in edits if edit.omission)
    if result is not None and not _touches_the_same(result, schema, reread, tidb=tidb):
        return Refused(f"its rewritten form would touch other tables: {result}")
    local = time_zones.zone_dependence(parts, site)
    return Rewritten(result, classified, (*steps, *edit_steps), left_out, source, local)


def without_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Takes spans out of a text."""
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + text[end:]
    return text


def _touches_the_same(text: str, schema: str, before: Classified, *, tidb: bool) -> bool:
    after = classify(text, schema, tidb=tidb, is_certain=True)
    if isinstance(after, Refused):
        return False
    names_before, names_after = ({name.folded for name in classified.tables} for classified in (before, after))
    if after.never_run:
        return False
    is_list = after.kind in {StatementKind.DROP_TABLE, StatementKind.RENAME_TABLE}
    is_same = names_after <= names_before if is_list else names_after == names_before
    return is_same and after.database == before.database and after.kind == before.kind


def _apply(parts: StatementParts, edits: Sequence[Edit]) -> tuple[str | None, list[RewriteStep]]:
    removals = _item_removals(parts, edits)
    edits = [*removals, *(edit for edit in edits if not any(_within(edit, removal) for removal in removals))]
    steps = [RewriteStep(parts.text[e.start : e.end].strip(), e.text.strip(), e.why) for e in edits]
    essential = [token for item in parts.lists[0] for token in item.tokens] if parts.lists else parts.tokens
    if parts.classified.kind is StatementKind.ALTER_DATABASE and parts.options:
        essential = parts.options
    if essential and _are_removed(essential, edits):
        return None, steps
    commas = [comma for tokens in _comma_lists(parts) for comma in _loose_commas(tokens, edits)]
    return _replace_spans(parts.text, [*edits, *commas]), steps


def _item_removals(parts: StatementParts, edits: Sequence[Edit]) -> list[Edit]:
    """Gives the removals of items, or of the statement, of which nothing is left, with the longest one's reason."""
    removals: list[Edit] = []
    for tokens in (parts.tokens, *(item.tokens for item in parts.items)):
        whole = Edit(*span_of(tokens), "", "")
        if _are_removed(tokens, edits) and not any(_within(whole, removal) for removal in removals):
            inner = (e for e in edits if not e.text and e.start < whole.end and whole.start < e.end)
            removals.append(whole._replace(why=max(inner, key=lambda edit: edit.end - edit.start).why))
    return removals


def _are_removed(tokens: Sequence[Token], edits: Sequence[Edit]) -> bool:
    """Tells whether nothing of the tokens is left."""
    removed = [(edit.start, edit.end) for edit in edits if not edit.text]
    return all(any(start <= t.span[0] and t.span[1] <= end for start, end in removed) for t in tokens)


def _comma_lists(parts: StatementParts) -> Iterator[Sequence[Token]]:
    """Gives the tokens of lists whose commas may be left over: items; options up to PARTITION BY; and all actions of
    ALTER TABLE, since one of them may be in a comment."""
    is_alter = parts.classified.kind is StatementKind.ALTER_TABLE
    if is_alter:
        yield [token for token in parts.tokens if token.span[0] >= parts.classified.touched[0].span[1]]
    for items in filter(None, parts.lists[is_alter:]):
        yield [token for token in parts.tokens if items[0].span[0] <= token.span[0] < items[-1].span[1]]
    pairs = pairwise([token.word for token in parts.options])
    yield parts.options[: next((i for i, pair in enumerate(pairs) if pair == ("PARTITION", "BY")), len(parts.options))]


def _loose_commas(tokens: Sequence[Token], edits: Sequence[Edit]) -> Iterator[Edit]:
    """Removes commas that separate nothing any more."""
    commas = [token for _, token in outer(tokens) if token.text == ","]
    if not commas:
        return
    is_kept = [not _are_removed(part, edits) for part in split_at_commas(tokens)]
    for i, comma in enumerate(commas):
        if not (any(is_kept[: i + 1]) and is_kept[i + 1]):
            yield Edit(*comma.span, "", "comma")


def _within(edit: Edit, other: Edit) -> bool:
    return other.start <= edit.start and edit.end <= other.end


def _replace_spans(text: str, edits: Sequence[Edit]) -> str:
    """Gives the text with all spans replaced.  An edit inside another one is a part of it; of two with the same span a
    removal counts, or else the earlier rule's.  Removals that overlap are one; other edits that do are refused."""
    outermost: list[Edit] = []
    for edit in sorted(edits, key=lambda e: (e.start, e.end > e.start, -e.end, bool(e.text))):
        if not outermost or edit.start >= outermost[-1].end:
            outermost.append(edit)
        elif not edit.text and not outermost[-1].text:
            outermost[-1] = outermost[-1]._replace(end=max(edit.end, outermost[-1].end))
        elif edit.end > outermost[-1].end:
            raise UnsupportedError(f"two rules change words of it that overlap: {edit.why}; {outermost[-1].why}")
    result, at = "", 0
    was_removed = False
    for edit in outermost:
        result = _append(result, text[at : edit.start], was_removed)
        was_removed = not edit.text
        result, at = result + edit.text, edit.end
    result = _append(result, text[at:], was_removed)
    return result.rstrip() if outermost else result


def _append(text: str, following: str, was_removed: bool) -> str:
    """Appends text; where something was removed, the blank before it goes too."""
    if was_removed and following[:1] in {" ", ",", ")"} and following:
        text = text.rstrip(" ")
    return text + following
