"""Measures `bridge verify` beside a plain SELECT, and beside decoding alone: `uv run python -m tests.bench.verify`."""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from sqlalchemy import make_url

from bridge.cache import cache_folder
from bridge.filters.routes import Routes, RowRules
from bridge.filters.table_filter import TableFilter
from bridge.local import Kafka, MariaDB
from bridge.mysql.connection.target import Target
from bridge.mysql.state.progress import ProgressTable
from bridge.pipeline.assembly import Assembly
from bridge.pipeline.pipeline import Pipeline
from bridge.protocols import DecodeOptions
from bridge.settings.load import load_settings
from bridge.sources.decoding_tasks import decoding_tasks
from bridge.sources.kafka.source import KafkaSource
from bridge.spark.chunk_source import chunks_of
from bridge.spark.decoded_batch import event_decoder
from bridge.spark.event_transfer import coming_chunks
from bridge.spark.process_memory import use_small_pages
from bridge.spark.session import StartingSession, start_session
from bridge.verify.log.verification import LogVerification
from bridge.verify.options import VerifyOptions
from bridge.verify.report import Report
from bridge.verify.source.verification import SourceVerification
from tests.bench.database import make_tables
from tests.bench.encoders import ENCODERS
from tests.bench.topics import fill
from tests.bench.workload import PARTITIONS, WORKLOADS, Upstream, messages
from tests.support.verify_servers import Quiet, execute

WORKLOAD = WORKLOADS["sysbench"]
SERVER = ("--innodb-log-file-size=512M", "--innodb-flush-log-at-trx-commit=2")
COLUMNS = "id, k, c, pad"
TABLE = "CREATE TABLE bench.sbtest (id INT PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL)"
ROWS_AT_ONCE = 250_000


def main(
    rows: Annotated[int, typer.Option(help="Rows compared with a source.")] = 5_000_000,
    events: Annotated[int, typer.Option(help="Row changes of the log.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Rounds of SELECT, or decoding, and verify, interleaved.")] = 3,
) -> None:
    """Starts its own servers; about 6 minutes with the defaults on 2 cores."""
    found = {
        "source": _against_source(rows, rounds) if rows else None,
        "log": _against_log(events, rounds) if events else None,
    }
    print(json.dumps(found, indent=2))


def _against_source(rows: int, rounds: int) -> dict[str, Any]:
    with MariaDB(buffer_pool="1536M", options=SERVER) as source, MariaDB(buffer_pool="1536M", options=SERVER) as target:
        _at_once(lambda: _fill(source.url, rows), lambda: _fill(target.url, rows))
        selects, both, verifies = [], [], []
        for _ in range(rounds):
            selects.append(_seconds(lambda: _select(source.url)))
            both.append(_seconds(lambda: _at_once(lambda: _select(source.url), lambda: _select(target.url))))
            verifies.append(_seconds(lambda: _verify_source(source.url, target.url, rows)))
    return {
        "rows": rows,
        "select_s": selects,
        "select_on_both_s": both,
        "verify_s": verifies,
        "verify_to_select": round(min(verifies) / min(selects), 2),
        "verify_to_select_on_both": round(min(verifies) / min(both), 2),
    }


def _fill(url: str, rows: int) -> None:
    execute(url, f"CREATE DATABASE bench; {TABLE}")
    for first in range(1, rows + 1, ROWS_AT_ONCE):
        last = min(rows, first + ROWS_AT_ONCE - 1)
        values = "seq, seq * 7 % 1000003, CONCAT(REPEAT(CONCAT(MD5(seq), '-'), 3), 'c'), CONCAT(MD5(seq + 1), '-pad')"
        execute(url, f"USE bench; INSERT INTO sbtest SELECT {values} FROM seq_{first}_to_{last}")


def _select(url: str) -> None:
    """The server's own client reads every row and throws it away."""
    [folder] = [path for path in cache_folder().glob("mariadb-11*/server") if path.is_dir()]
    where = make_url(url)
    subprocess.run(
        [folder / "bin" / "mariadb", "--no-defaults", "--quick", "-h", str(where.host), "-P", str(where.port),
         "-u", "root", "-e", f"SELECT {COLUMNS} FROM bench.sbtest"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
    )  # fmt: skip


def _verify_source(source: str, target: str, rows: int) -> None:
    options = VerifyOptions(row_rules=RowRules(routes=Routes(tables=TableFilter(("bench.*",)))))
    places = Target(target), Target(source, role="upstream")
    _checked(SourceVerification(*places, ProgressTable("bench"), options, Quiet()).run(), rows)


def _checked(report: Report, rows: int) -> None:
    assert report.is_equal, report.document()
    assert sum(table.rows for table in report.tables) == rows


def _against_log(events: int, rounds: int) -> dict[str, Any]:
    use_small_pages()  # as verify does before Spark starts
    with Kafka() as kafka, MariaDB(buffer_pool="1G", options=SERVER) as mariadb:
        kafka.create_topic("bench", PARTITIONS)
        upstream = Upstream(WORKLOAD)
        make_tables(mariadb.url, WORKLOAD)
        fill(kafka.bootstrap_servers, "bench", messages(upstream, ENCODERS["canal-json"](PARTITIONS), events))
        target, source = Target(mariadb.url), KafkaSource(kafka.bootstrap_servers, ["bench"], {})
        settings = load_settings(None, {}, {"name": "bench", "target": mariadb.url}, [])
        pipeline = Pipeline(Assembly(settings, target, source, "canal-json"), StartingSession({}, "off"))
        pipeline.catch_up(None, lambda _: None, take_over=False)
        spark = start_session({})
        decode = event_decoder("canal-json", DecodeOptions(None))
        extents = source.extents()
        decodes, verifies = [], []
        for _ in range(rounds):
            messages_read = source.everything(extents)
            with TemporaryDirectory() as folder:
                export = partial(coming_chunks, folder=folder, most_bytes=math.inf)
                tasks = decoding_tasks(messages_read, spark.sparkContext.defaultParallelism, decode, export)
                decodes.append(_seconds(lambda tasks=tasks, folder=folder: chunks_of(spark, tasks, folder).count()))
            table, options = ProgressTable("bench"), VerifyOptions()
            check = LogVerification(settings, target, source, "canal-json", table, options, Quiet())
            verifies.append(_seconds(lambda check=check: _checked(check.run(), len(upstream.numbers))))
        spark.stop()
    return {
        "events": events,
        "rows": len(upstream.numbers),
        "decode_s": decodes,
        "decode_events_per_s": round(events / median(decodes)),
        "verify_s": verifies,
        "verify_events_per_s": round(events / median(verifies)),
        "verify_to_decode": round(median(verifies) / median(decodes), 2),
    }


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return round(time.monotonic() - began, 2)


def _at_once(*works: Callable[[], object]) -> None:
    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(work) for work in works]:
            done.result()


if __name__ == "__main__":
    typer.run(main)
