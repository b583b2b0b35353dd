"""An account with exactly the grants that the manual lists, which are those that `bridge check` looks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from bridge.commands.check import grants
from bridge.model import quote_name
from tests.support.pipelines import admin

_USER = "least@'%'"


@contextmanager
def least_account(url: str, databases: Iterable[str]) -> Iterator[str]:
    """Makes the account, for pipelines that replicate these databases; gives the URL by which it connects."""
    with admin(url) as session:
        session.execute(f"CREATE USER {_USER}")
        try:
            for database in databases:
                session.execute(f"GRANT {_named(grants.REPLICATED)} ON {quote_name(database)}.* TO {_USER}")
            session.execute(f"GRANT {_named(grants.OWN)} ON _bridge.* TO {_USER}")
            yield url.replace("root@", "least@")
        finally:
            session.execute(f"DROP USER {_USER}")


def _named(needs: grants.Needs) -> str:
    return ", ".join(needs)
