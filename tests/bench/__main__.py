"""Measures catch-up and latency beside the server's own ceiling, in one run, and prints ratios."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from typing import Annotated

import pymysql
import typer
from confluent_kafka import Producer
from sqlalchemy import make_url

from bridge.local import Kafka, MariaDB
from tests.bench.ceiling import ready_made, seconds_to_apply
from tests.bench.processes import Usage
from tests.bench.workload import SCHEMA, START_TS, Message, Sysbench, canal_json, paced_transactions

PARTITIONS = 4
SERVER = ("--innodb-log-file-size=512M", "--innodb-flush-log-at-trx-commit=1")


def main(
    events: Annotated[int, typer.Option(help="Row changes of the catch-up.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Rounds of ceiling and catch-up, interleaved.")] = 3,
    rate: Annotated[int, typer.Option(help="Transactions a second of the latency run.")] = 100,
    seconds: Annotated[int, typer.Option(help="Length of the latency run.")] = 30,
) -> None:
    """Starts its own Kafka and MariaDB; about 5 minutes with the defaults on 2 cores."""
    with Kafka() as kafka, MariaDB(buffer_pool="1G", options=SERVER) as mariadb:
        kafka.create_topic("bench", PARTITIONS)
        upstream = Sysbench()
        _produce(kafka.bootstrap_servers, "bench", canal_json(upstream, events, PARTITIONS))
        ceilings, catch_ups = [], []
        transactions = ready_made(canal_json(Sysbench(), events, PARTITIONS))
        for number in range(rounds):
            ceilings.append(events / seconds_to_apply(mariadb.url, transactions))
            _drop(mariadb.url)
            catch_ups.append(_catch_up(kafka, mariadb, f"bench{number}"))
            _compare(mariadb.url, upstream)
        del transactions
        found = {
            "events": events,
            "ceiling_rows_per_s": _spread(ceilings),
            "catch_up_rows_per_s": _spread([c["rate"] for c in catch_ups]),
            "ratio": _spread([c["rate"] / ceiling for c, ceiling in zip(catch_ups, ceilings, strict=True)]),
            "cpu_seconds": catch_ups[-1]["cpu_seconds"],
            "peak_mib": catch_ups[-1]["peak_mib"],
            "latency_s": _latency(kafka, mariadb, rate, seconds),
        }
    print(json.dumps(found, indent=2))


def _produce(servers: str, topic: str, messages: object) -> None:
    producer = Producer(
        {"bootstrap.servers": servers, "compression.type": "lz4", "linger.ms": 50, "batch.size": 1_000_000,
         "queue.buffering.max.messages": 500_000}
    )  # fmt: skip
    for message in messages:  # type: ignore[attr-defined]
        _send(producer, topic, message)
    producer.flush()


def _send(producer: Producer, topic: str, message: Message) -> None:
    partition, key, value = message
    while True:
        try:
            producer.produce(topic, key=key, value=value, partition=partition)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def _catch_up(kafka: Kafka, mariadb: MariaDB, name: str) -> dict[str, object]:
    """Rows/s from the first row read to the last one committed: the run less what an empty run takes."""
    command = [
        sys.executable, "-m", "bridge", "replay", "--json", "--name", name, "--protocol", "canal-json", "--topic",
        "bench", "--bootstrap-servers", kafka.bootstrap_servers, "--target", mariadb.url,
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        usage = Usage(process.pid)
        usage.start()
        said, _ = process.communicate()
        usage.stop()
    outcome = json.loads(said)
    return {
        "rate": outcome["rows"] / outcome["stream_seconds"],
        "cpu_seconds": usage.cpu_seconds,
        "peak_mib": usage.peak_mib,
    }


def _connect(url: str) -> pymysql.Connection:
    where = make_url(url)
    return pymysql.connect(host=where.host, port=where.port or 3306, user=where.username, charset="utf8mb4")


def _drop(url: str) -> None:
    with _connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {SCHEMA}")


def _compare(url: str, upstream: Sysbench) -> None:
    with _connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT id, k, c, pad FROM {SCHEMA}.sbtest")
        assert {row[0]: row for row in cursor.fetchall()} == upstream.rows, "the end state differs"


def _spread(values: list[float]) -> dict[str, float]:
    return {"min": round(min(values), 3), "median": round(statistics.median(values), 3), "max": round(max(values), 3)}


def _latency(kafka: Kafka, mariadb: MariaDB, rate: int, seconds: int) -> dict[str, float]:
    """From the produce call of a transaction to its row being visible in the target."""
    kafka.create_topic("latency", PARTITIONS)
    _drop(mariadb.url)
    command = [
        sys.executable, "-m", "bridge", "run", "--name", "latency", "--protocol", "canal-json", "--topic", "latency",
        "--bootstrap-servers", kafka.bootstrap_servers, "--target", mariadb.url,
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        sent: dict[int, float] = {}
        watcher = threading.Thread(target=_pace, args=(kafka.bootstrap_servers, rate, seconds + 20, sent), daemon=True)
        watcher.start()
        seen = _watch(mariadb.url, sent, seconds)
        process.terminate()
        process.wait(60)
    return {
        "p50": round(statistics.median(seen), 3),
        "p95": round(statistics.quantiles(seen, n=20)[-1], 3),
        "max": round(max(seen), 3),
        "transactions": len(seen),
    }


def _pace(servers: str, rate: int, seconds: int, sent: dict[int, float]) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for number, messages in enumerate(paced_transactions(rate * seconds, rate, PARTITIONS, START_TS)):
        sent[number] = time.monotonic()
        for message in messages:
            _send(producer, "latency", message)
        producer.poll(0)
        time.sleep(1 / rate)
    producer.flush()


def _watch(url: str, sent: dict[int, float], seconds: int) -> list[float]:
    """Latencies of the transactions that become visible after the bridge has warmed up."""
    latencies: list[float] = []
    last = -1
    warm_at: float | None = None
    with _connect(url) as connection, connection.cursor() as cursor:
        connection.autocommit(True)
        while warm_at is None or time.monotonic() < warm_at + seconds:
            time.sleep(0.01)
            try:
                cursor.execute(f"SELECT MAX(id) FROM {SCHEMA}.sbtest")
            except pymysql.err.ProgrammingError:
                continue
            newest = (cursor.fetchone() or (None,))[0]
            if newest is None:
                continue
            now = time.monotonic()
            warm_at = warm_at or now + 5
            if now > warm_at:
                latencies += [now - sent[number] for number in range(last + 1, newest + 1)]
            last = newest
    return latencies


if __name__ == "__main__":
    typer.run(main)
