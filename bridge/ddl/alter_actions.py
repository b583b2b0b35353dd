"""Finds the actions of an ALTER TABLE: where each one ends, and what it does."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations
from typing import NamedTuple

from bridge.ddl.classes import ACTIONS, CONSTRAINTS, RUNS_ON, ChangeClass
from bridge.ddl.lexer import NotUnderstoodError, Token


class ColumnNames(NamedTuple):
    """What actions do to names of columns, in lower case.  renamed: old and new names; freed: names that columns lose;
    given: names that columns get."""

    renamed: list[tuple[str, str]]
    freed: set[str]
    given: set[str]

    @property
    def gone(self) -> set[str]:
        """The names that no column has any more."""
        return self.freed - self.given

    @property
    def dropped(self) -> set[str]:
        """The columns that are gone; one of that name may come again with other values."""
        return self.freed - {old for old, _ in self.renamed}


def swaps_columns(actions: Sequence[Sequence[Token]]) -> bool:
    """Tells whether a column gets the name that another one had, while its own name is given again: CHANGE a b ...,
    CHANGE b a ...; or DROP b, CHANGE a b ..., ADD a ...."""
    renamed, freed, given = column_names(actions)
    return any(old in given and new in freed for old, new in renamed)


def takes_name_early(actions: Sequence[Sequence[Token]]) -> bool:
    """Tells whether an action gives a column the name that another column loses by a later one."""
    names = [column_names([action]) for action in actions]
    return any(one.given & later.freed for one, later in combinations(names, 2))


def comes_after_later_name(actions: Sequence[Sequence[Token]]) -> bool:
    """Tells whether an action puts a column AFTER another by the name that this one gets by a later action."""
    afters = [_lower(action[-1:]) if [token.word for token in action[-2:-1]] == ["AFTER"] else "" for action in actions]
    renamed = [{new for _, new in column_names([action]).renamed} for action in actions]
    return any(after in later for (after, _), (_, later) in combinations(zip(afters, renamed, strict=True), 2))


def columns_if_not_there(action: Sequence[Token]) -> list[tuple[Token, ...]]:
    """Gives the definitions of the columns that ADD COLUMN IF NOT EXISTS adds, from their names on."""
    behind = behind_verb(action)
    if "NOT" not in {token.word for token in action[: -len(behind)]}:
        return []
    return split_at_commas(behind[1:-1]) if behind[0].text == "(" else [behind]


def column_names(actions: Sequence[Sequence[Token]]) -> ColumnNames:
    """Tells which names of columns the actions of an ALTER TABLE take away, and which they give."""
    renamed: list[tuple[str, str]] = []
    freed, given = set[str](), set[str]()
    for action in chain.from_iterable(map(additions, actions)):
        found, behind = action_class(action), behind_verb(action)
        if pair := behind[:2] if action[0].word == "CHANGE" else renamed_column(action):
            renamed.append((_lower(pair[:1]), _lower(pair[1:])))
        elif found is ChangeClass.DROP_COLUMN:
            freed.add(_lower(behind[:1]))
        elif found is ChangeClass.ADD_COLUMN:
            given.add(_lower(behind[:1]))
    renamed = [(old, new) for old, new in renamed if old != new]
    return ColumnNames(renamed, freed | {old for old, _ in renamed}, given | {new for _, new in renamed})


def renamed_column(action: Sequence[Token]) -> tuple[Token, Token] | None:
    """Gives the old and the new name of RENAME COLUMN [IF EXISTS] old TO new; None for another action."""
    names = behind_verb(action)
    if [token.word for token in action[:2]] != ["RENAME", "COLUMN"] or len(names) < 3:
        return None
    return names[0], names[2]


def behind_verb(action: Sequence[Token]) -> tuple[Token, ...]:
    """Gives what follows ADD, DROP, MODIFY, CHANGE or RENAME, from the column's name on."""
    words = [token.word for token in action[:5]]
    at = 1 + (words[1:2] == ["COLUMN"])
    if words[at : at + 1] == ["IF"]:
        at += 2 + (words[at + 1 : at + 2] == ["NOT"])
    return tuple(action[at:])


def _lower(name: Sequence[Token]) -> str:
    return "".join(token.name or "" for token in name).lower()


def additions(action: Sequence[Token]) -> list[Sequence[Token]]:
    """Gives ADD (...) as one action for each column, key or check that it adds, and any other action as it is."""
    behind = behind_verb(action)
    if [token.text for token in behind[:1]] != ["("] or action_class(action) is not ChangeClass.ADD_COLUMN:
        return [action]
    return [(action[0], *part) for part in split_at_commas(behind[1:-1])]


def alter_actions(found: Sequence[Token]) -> list[tuple[Token, ...]]:
    """Gives the actions of an ALTER TABLE from the tokens that follow the table's name.  An action inside a comment
    does not count."""
    actions: list[list[Token]] = []
    for part in filter(None, split_at_commas([token for token in found if token.text != ";"])):
        goes_on = _prefix(part) is None  # one more name of a list: DROP PARTITION a, b; ORDER BY a, b
        if actions and action_class(tuple(actions[-1])) in RUNS_ON | {ChangeClass.TABLE_OPTION} and goes_on:
            actions[-1].extend(part)
        else:
            actions.append(list(part))
    return [tuple(action) for action in actions]


def split_at_commas(found: Sequence[Token]) -> list[tuple[Token, ...]]:
    """Splits tokens at the commas outside of parentheses; gives no part where there are no tokens."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in found:
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [tuple(part) for part in parts] if found else []


def action_class(action: Sequence[Token]) -> ChangeClass:
    """Tells what one action of ALTER TABLE does.  Raises NotUnderstoodError for an action that is not known."""
    if [token.word for token in action[:2]] == ["ADD", "CONSTRAINT"]:
        words = [token.word for token in without_if(action)[2:4]]
        added = next((CONSTRAINTS[word] for word in words if word in CONSTRAINTS), None)
    else:
        added = _prefix(action)
    if added is None:
        raise NotUnderstoodError(
            "the bridge does not know this action of ALTER TABLE: " + " ".join(token.text for token in action[:6])
        )
    return added


def without_if(action: Sequence[Token]) -> tuple[Token, ...]:
    """Gives an action without its IF NOT EXISTS."""
    words = [token.word for token in action[:6]]
    at = next((i for i in range(len(words)) if words[i : i + 3] == ["IF", "NOT", "EXISTS"]), None)
    return tuple(action) if at is None else (*action[:at], *action[at + 3 :])


def _prefix(action: Sequence[Token]) -> ChangeClass | None:
    words = tuple(token.word for token in action[:3])
    if words[:1] == ("PARTITION",) and words[2:] in {("PLACEMENT",), ("ATTRIBUTES",)}:
        return ChangeClass.TABLE_OPTION
    if action[0].kind == "quoted" and [token.text for token in action[1:2]] == ["="]:
        return ChangeClass.TABLE_OPTION  # MariaDB's `name`='value' for an engine
    return next((ACTIONS[words[:n]] for n in (3, 2, 1) if words[:n] in ACTIONS), None)
