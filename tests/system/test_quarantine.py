"""A damaged message in a genuine capture of whole transactions, through the command."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from tests.support.captures import read_lines, with_value, write_lines
from tests.support.command import bridge
from tests.support.pipelines import sql

pytestmark = pytest.mark.usefixtures("spark")


def test_a_transaction_of_which_a_row_cannot_be_decoded(target: str, real_senders: Path, tmp_path: Path) -> None:
    """It would never be whole: the bridge stops before it with `quarantine` too, and says what to name.  The operator
    names the message; then what its transaction lacks is told, and with its id the bridge goes on without the row."""
    lines = read_lines(real_senders / "debezium-restarts" / "bank.jsonl")[:600]
    number = next(n for n, line in enumerate(lines) if n > 500 and line["topic"].endswith("acc_a"))
    lines[number] = with_value(lines[number], base64.b64decode(lines[number]["value"])[:-9])
    path = write_lines(tmp_path / "bank.jsonl", lines)
    arguments = ["replay", "--protocol", "debezium", "--input", str(path), "--target", target]
    arguments += ["--set", "ddl.source=mysql-8", "--timezone", "UTC", "--on-bad-message", "quarantine"]
    where = f"{lines[number]['topic']}/0/{lines[number]['offset']}"
    ended = bridge(*arguments)
    assert ended.code == 3, ended.err
    assert where in ended.last_line
    assert "source.quarantine, and its transaction in source.incomplete_transactions" in ended.last_line
    ended = bridge(*arguments, "--set", f"source.quarantine={where}")
    assert ended.code == 0, ended.err
    [id_] = re.findall(r"transaction_waits .*the transaction (\S+) lacks rows: bank.acc_a: 0 of 1", ended.err)
    arguments += ["--set", f"source.quarantine={where}", "--set", f"source.incomplete_transactions={id_}"]
    ended = bridge(*arguments)
    assert (ended.code, "applied 0 row changes" in ended.out) == (4, False), ended.err
    assert bridge(*arguments).code == 0  # it is reported once
    assert sql(target, "SELECT topic, `partition`, `offset` FROM _bridge.quarantine") == [
        (lines[number]["topic"], 0, lines[number]["offset"])
    ]
