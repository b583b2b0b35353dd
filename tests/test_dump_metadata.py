"""The moment of a dump, from the files that dumpling and mydumper write."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.errors import UsageError
from bridge.settings.dump_metadata import begin_after
from tests.support.command import bridge

DUMPLING = """Started dump at: 2026-11-22 21:00:00
SHOW MASTER STATUS:
\tLog: tidb-binlog
\tPos: 470611860099956736
\tGTID:

Finished dump at: 2026-11-22 21:00:09
"""
OF_A_REPLICA = """Started dump at: 2026-11-22 21:00:00
SHOW MASTER STATUS:
\tLog: mysql-bin.000003
\tPos: 7502
\tGTID:6ce40be3-e359-11e9-87e0-36933cb0ca5a:1-29

SHOW SLAVE STATUS:
\tHost: other
\tLog: tidb-binlog
\tPos: 470611860099956736
\tGTID:

Finished dump at: 2026-11-22 21:00:09
"""
AFTER_POOL = DUMPLING.replace(
    "Finished",
    "SHOW MASTER STATUS: /* AFTER CONNECTION POOL ESTABLISHED */\n\tLog: tidb-binlog\n\tPos: 470611860099956999\n\n"
    "Finished",
)
MYDUMPER_0_14 = """# Started dump at: 2023-03-30 18:01:45
[master]
# Channel_Name = '' # It can be use to setup replication FOR CHANNEL
File = tidb-binlog
Position = 470611860099956736
Executed_Gtid_Set = 208389f9-c558-11eb-bfdc-02bd2e549d49:1-6586949655,
2f65bc8b-ba1b-11ea-a5bc-069d047c9d40:1-2426150392


[`database`.`table`]
Rows = 55
# Finished dump at: 2023-03-30 18:01:47
"""
MYDUMPER_0_16 = """# Started dump at: 2025-11-11 16:47:34
[config]
quote_character = BACKTICK

[myloader_session_variables]
SQL_MODE='NO_AUTO_VALUE_ON_ZERO' /*!40101

[source]
# Channel_Name = '' # It can be use to setup replication FOR CHANNEL
# SOURCE_LOG_FILE = "tidb-binlog"
# SOURCE_LOG_POS = 470611860099956736
#SOURCE_AUTO_POSITION = {0|1}
[`d`.`t`]
real_table_name=t
rows = 3
"""


def dump(folder: Path, text: str) -> Path:
    (folder / "metadata").write_text(text)
    return folder


@pytest.mark.parametrize("text", [DUMPLING, AFTER_POOL, MYDUMPER_0_14, MYDUMPER_0_16])
def test_a_dump_of_tidb(tmp_path: Path, text: str) -> None:
    """The pipeline begins behind the snapshot, which holds what was committed at its very TSO."""
    assert begin_after(dump(tmp_path, text)) == 470611860099956736 + 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (OF_A_REPLICA, "it names mysql-bin.000003 at 7502"),
        ("Started dump at: 2023-08-15 16:56:05\nFinished dump at: 2023-08-15 17:11:28\n", "does not name its moment"),
        (MYDUMPER_0_16.replace("# SOURCE_LOG", "# OTHER"), "does not name its moment"),
        ("", "does not name its moment"),
        (DUMPLING.replace("470611860099956736", "2026-11-22 21:00:00"), "has no TSO"),
        (DUMPLING.replace("470611860099956736", "7502"), "has no TSO"),
        (DUMPLING.replace("470611860099956736", "9" * 5000), "has no TSO"),
    ],
)
def test_a_dump_without_a_tso(tmp_path: Path, text: str, words: str) -> None:
    """Is refused, with what to do; the log of a server that was followed is not taken for its own."""
    with pytest.raises(UsageError, match=words) as refused:
        begin_after(dump(tmp_path, text))
    assert "--from" in refused.value.fix


def test_no_dump(tmp_path: Path) -> None:
    """A folder that holds none, as while the dump is still being made."""
    with pytest.raises(UsageError, match="metadata cannot be read"):
        begin_after(tmp_path)


def test_the_flag(tmp_path: Path) -> None:
    """--from-dump is --from with the moment behind the dump; both together are refused."""
    folder = str(dump(tmp_path, DUMPLING))
    assert "begins at 470611860099956737" in bridge("check", "--from-dump", folder).out
    both = bridge("replay", "--from-dump", folder, "--from", "earliest")
    assert (both.code, "both say where to begin" in both.err) == (2, True)
    other = bridge("run", "--from-dump", str(tmp_path / "no"))
    assert (other.code, "metadata cannot be read" in other.err) == (2, True)
