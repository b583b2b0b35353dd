"""Measures the bridge beside the server's own ceiling, in one run, and prints ratios: `--help` says the rest."""

from __future__ import annotations

import itertools
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from bridge.local import Kafka, MariaDB
from tests.bench import catching_up, growth, large, on_cluster, report, steady
from tests.bench.bridges import Servers
from tests.bench.encoders import MEASURED, schemas_in_avro
from tests.bench.workload import WORKLOADS
from tests.support.registry import serving

SERVER = ("--innodb-log-file-size=512M", "--innodb-flush-log-at-trx-commit=1")

Protocol = StrEnum("Protocol", [(name, name) for name in MEASURED])
WorkloadName = StrEnum("WorkloadName", [(name, name) for name in WORKLOADS])
Consistency = StrEnum("Consistency", [(name, name) for name in catching_up.CONNECTIONS])
AxisName = StrEnum("AxisName", [(name, name) for name in growth.axes(0)])
HEADLINES = [WorkloadName["real"], WorkloadName["sysbench"]]


class Part(StrEnum):
    """What can be measured by itself."""

    CATCH_UP = "catch-up"
    STEADY = "steady"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

JsonFlag = Annotated[Path | None, typer.Option("--json", help="Write everything found to this file.")]
RoundsFlag = Annotated[int, typer.Option("--rounds", min=1, help="Rounds; medians are shown.")]


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    only: Annotated[list[Part] | None, typer.Option("--only", help="A part; repeatable.  [default: all]")] = None,
    protocol: Annotated[
        list[Protocol] | None, typer.Option("--protocol", help="Repeatable.  [default: canal-json and open-protocol]")
    ] = None,
    consistency: Annotated[
        list[Consistency] | None, typer.Option("--consistency", help="Repeatable.  [default: both]")
    ] = None,
    workload: Annotated[
        list[WorkloadName] | None,
        typer.Option(
            "--workload",
            help="real: rows as shops have them; sysbench: 4 columns; hot: 1,000 keys; wide: 60 columns."
            "  [default: real and sysbench]",
        ),
    ] = None,
    events: Annotated[int, typer.Option("--events", min=1000, help="Row changes of a catch-up.")] = 1_000_000,
    rounds: RoundsFlag = 3,
    seconds: Annotated[float, typer.Option("--seconds", min=5, help="Length of each latency measurement.")] = 30,
    json_file: JsonFlag = None,
) -> None:
    """Starts a Kafka and a MariaDB of its own, and measures in one run, interleaved:

    catch-up: the server's ceiling (ready-made multi-row statements on one and on two connections) and `bridge replay`
    of a filled topic, per workload, protocol and consistency; processor time by process, peak memory; the end state is
    compared each time.

    steady: `bridge run` on a bank whose money moves: seconds to the first row, latency from the produce call to
    visible at 200 transactions a second and at one, processor time without messages and at one boundary a second,
    while a reader checks in every snapshot that no money is made or lost.  For the first protocol and consistency
    given, canal-json and atomic by default.

    The defaults take about 12 minutes on 2 cores.  Other work on the machine moves rates; ratios less.
    """
    if context.invoked_subcommand:
        return
    parts = only or list(Part)
    protocols = protocol or [Protocol["canal-json"], Protocol["open-protocol"]]
    consistencies = consistency or list(Consistency)
    found = about()
    with servers() as running:
        if Part.CATCH_UP in parts:
            cases = [
                catching_up.Case(*map(str, chosen))
                for chosen in itertools.product(workload or HEADLINES, protocols, consistencies)
            ]
            found["catch_up"] = catching_up.measure(running, cases, events, rounds, say)
        if Part.STEADY in parts:
            lives = [(str(protocols[0]), str(consistencies[0]))]
            if only and protocol:
                lives = [(str(p), str(c)) for p in protocols for c in consistencies]
            found["steady"] = [steady.measure(running, p, c, seconds, say) for p, c in lives]
    end(found, json_file)


@app.command(name="growth")
def measure_growth(
    axis: Annotated[list[AxisName] | None, typer.Option("--axis", help="Repeatable.  [default: all]")] = None,
    largest: Annotated[int, typer.Option("--largest", help="The most events of the axis of events.")] = 3_000_000,
    consistency: Annotated[Consistency, typer.Option("--consistency")] = Consistency["atomic"],
    share: Annotated[
        float, typer.Option("--share", min=0.001, max=1, help="Of each point's row changes, for a quick look.")
    ] = 1,
    rounds: RoundsFlag = 1,
    json_file: JsonFlag = None,
) -> None:
    """Catch-up rates at 1 to 16 partitions, 1e5 to 1e7 events, 1 to 10,000 tables, 4 to 200 columns."""
    found, known = about(), growth.axes(largest, share)
    with servers() as running:
        chosen = [known[str(name)] for name in axis or known]
        found["growth"] = growth.measure(running, chosen, str(consistency), rounds, say)
    end(found, json_file)


@app.command(name="large")
def measure_large(
    backlog: Annotated[int, typer.Option("--backlog", min=0, help="Row changes before the only boundary.")] = 5_000_000,
    transaction: Annotated[int, typer.Option("--transaction", min=0, help="Row changes of one commit ts.")] = 1_000_000,
    protocol: Annotated[Protocol, typer.Option("--protocol")] = Protocol["canal-json"],
    consistency: Annotated[Consistency, typer.Option("--consistency")] = Consistency["atomic"],
    json_file: JsonFlag = None,
) -> None:
    """Catch-up of a backlog of which nothing is complete before its end, and of one large transaction (0: neither);
    peak memory of Python and JVM together."""
    found = about()
    wanted = {shape: rows for shape, rows in (("backlog", backlog), ("transaction", transaction)) if rows}
    with servers() as running:
        found["large"] = large.measure(running, wanted, str(protocol), str(consistency), say)
    end(found, json_file)


@app.command()
def cluster(
    protocol: Annotated[Protocol, typer.Option("--protocol")] = Protocol["canal-json"],
    consistency: Annotated[Consistency, typer.Option("--consistency")] = Consistency["atomic"],
    events: Annotated[int, typer.Option("--events", min=1000, help="Row changes of a catch-up.")] = 500_000,
    rounds: RoundsFlag = 3,
    json_file: JsonFlag = None,
) -> None:
    """Catch-up on a Spark standalone cluster of this machine: one executor and two, of one core each, interleaved."""
    found = about()
    with servers() as running:
        found["cluster"] = on_cluster.measure(running, str(protocol), str(consistency), events, rounds, say)
    end(found, json_file)


@contextmanager
def servers() -> Iterator[Servers]:
    """A Kafka and a MariaDB, as the measurements need them, and what makes bridges start sooner."""
    subprocess.run([sys.executable, "-m", "bridge.spark.class_archive"], check=True, stdout=subprocess.DEVNULL)
    schemas = schemas_in_avro(shape for workload in WORKLOADS.values() for shape in workload.shapes)
    with Kafka() as kafka, MariaDB(buffer_pool="1G", options=SERVER) as mariadb, serving(schemas) as registry:
        yield Servers(kafka, mariadb, registry)


def about() -> dict[str, Any]:
    """Where and when."""
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cores": os.cpu_count(),
        "machine": platform.platform(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def say(what: str) -> None:
    """Progress, on stderr."""
    print(time.strftime("%H:%M:%S"), what, file=sys.stderr, flush=True)


def end(found: dict[str, Any], json_file: Path | None) -> None:
    """Shows and writes what was found."""
    print(report.markdown(found))
    if json_file:
        json_file.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    app(prog_name="python -m tests.bench")
