"""The server that generated runs write to: MariaDB 11.4, or what GENERATED_SERVER names, by the name of its fixture."""

from __future__ import annotations

import os
from typing import Final

SERVER: Final = os.environ.get("GENERATED_SERVER", "mariadb")
"""mariadb, mysql or tidb."""
_OF_MYSQL: Final = {
    "utf8mb4_uca1400_ai_ci": "utf8mb4_unicode_520_ci",
    "utf8mb4_nopad_bin": "utf8mb4_0900_bin",
    "utf8mb4_general_nopad_ci": "utf8mb4_0900_as_ci",
    "utf8mb4_uca1400_nopad_ai_ci": "utf8mb4_0900_ai_ci",
}
_OF_TIDB: Final = {
    "utf8mb4_uca1400_ai_ci": "utf8mb4_unicode_ci",
    "utf8mb4_nopad_bin": "utf8mb4_0900_bin",
    "utf8mb4_general_nopad_ci": "utf8mb4_0900_ai_ci",
    "utf8mb4_uca1400_nopad_ai_ci": "utf8mb4_0900_ai_ci",
    "latin1_swedish_ci": "latin1_bin",
}
_COLLATIONS: Final = {"mysql": _OF_MYSQL, "tidb": _OF_TIDB}


def collation(name: str) -> str:
    """Gives the server's collation that is most like one of MariaDB's."""
    return _COLLATIONS.get(SERVER, {}).get(name, name)
