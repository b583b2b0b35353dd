"""Finds the actions of an ALTER TABLE: where each one ends, and what it does."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.ddl.classes import ACTIONS, CONSTRAINTS, RUNS_ON, ChangeClass
from bridge.ddl.lexer import Token
from bridge.ddl.token_reader import NotUnderstoodError


def swaps_columns(actions: Sequence[Sequence[Token]]) -> bool:
    """Tells whether a column gets the name that another one had: CHANGE a b ..., CHANGE b a ...."""
    old_names, new_names = set(), set()
    for action in actions:
        words = [token.word for token in action[:4]]
        if words[:2] == ["RENAME", "COLUMN"]:
            old, new = action[2:3], action[4:5]
        elif words[:1] == ["CHANGE"]:
            skipped = 1 + (words[1:2] == ["COLUMN"])
            skipped += 2 * (words[skipped : skipped + 2] == ["IF", "EXISTS"])
            old, new = action[skipped : skipped + 1], action[skipped + 1 : skipped + 2]
        else:
            continue
        names = [(token.name or "").lower() for token in (*old, *new)]
        if len(set(names)) == 2:
            old_names.add(names[0])
            new_names.add(names[1])
    return bool(old_names & new_names)


def classes_of(action: Sequence[Token]) -> list[ChangeClass]:
    """Tells what an action does; ADD (...) may add columns, keys and checks."""
    added = action_class(action)
    opening = next((i for i in (1, 2) if [token.text for token in action[i : i + 1]] == ["("]), None)
    if added is not ChangeClass.ADD_COLUMN or opening is None:
        return [added]
    parts = split_at_commas(action[opening + 1 : -1])
    return [action_class((action[0], *part)) for part in parts]


def alter_actions(found: Sequence[Token]) -> list[tuple[Token, ...]]:
    """Gives the actions of an ALTER TABLE from the tokens that follow the table's name.  An action inside a comment
    does not count."""
    actions: list[list[Token]] = []
    for part in filter(None, split_at_commas([token for token in found if token.text != ";"])):
        if actions and action_class(tuple(actions[-1])) in RUNS_ON | {ChangeClass.TABLE_OPTION} and _goes_on(part):
            actions[-1].extend(part)
        else:
            actions.append(list(part))
    return [tuple(action) for action in actions]


def _goes_on(part: Sequence[Token]) -> bool:
    """Tells whether what follows the comma is one more name of a list: DROP PARTITION a, b; ORDER BY a, b."""
    return _prefix(part) is None


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
        words = [token.word for token in action[2:4]]
        added = next((CONSTRAINTS[word] for word in words if word in CONSTRAINTS), None)
    else:
        added = _prefix(action)
    if added is None:
        raise NotUnderstoodError(
            "the bridge does not know this action of ALTER TABLE: " + " ".join(token.text for token in action[:6])
        )
    return added


def _prefix(action: Sequence[Token]) -> ChangeClass | None:
    words = tuple(token.word for token in action[:3])
    if words[:1] == ("PARTITION",) and words[2:] in {("PLACEMENT",), ("ATTRIBUTES",)}:
        return ChangeClass.TABLE_OPTION
    return next((ACTIONS[words[:n]] for n in (3, 2, 1) if words[:n] in ACTIONS), None)
