"""Whatever is typed, and whatever fails: an exit code that means something, and one line that says what to do."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import make_url

from bridge import demo, exits
from bridge.errors import StoppedError
from bridge.mysql.state.progress import ProgressTable
from bridge.settings import load
from tests.support.command import SECONDS, Ended, Process, bridge
from tests.support.pipelines import admin
from tests.support.shop import write_capture

NOWHERE = "mysql://root@127.0.0.1:1/"
KAFKA = ("--bootstrap-servers", "127.0.0.1:1", "--topic", "t")
SOME = '{"partition":0,"offset":0,"key":null,"value":"e30="}\n'


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what can be wrong with a file."""
    folder = tmp_path_factory.mktemp("files")
    for name, content in {
        "some.jsonl": SOME.encode(),
        "junk.jsonl": b"\x00\xff{[",
        "array.jsonl": b"[1, 2]\n",
        "types.jsonl": b'{"partition":{},"offset":[],"value":7}\n',
        "huge.jsonl": b'{"partition":0,"offset":1e400,"value":null}\n',
        "base64.jsonl": b'{"partition":0,"offset":0,"value":"\xc3\xa4=="}\n',
        "null.jsonl": b"null\n",
        "partition.jsonl": b'{"offset":3,"value":null}\n',
        "offset.jsonl": b'{"partition":0}\n',
        "junk.toml": b"\x00\xff",
        "broken.toml": b"[target\n",
        "deep.toml": b"a = " + b"[" * 5000,
        "list.toml": b"target = [1]\n",
        "type.toml": b"[target]\nurl = 7\n",
        "date.toml": b"name = 2026-01-01\n",
        "range.toml": b"[target]\nretry_seconds = -1\n",
        "dotted.toml": b'[source.kafka]\nsecurity.protocol = "SSL"\n',
        "junk.password": b"\xff\xfe",
        "empty.sql": b"",
        "junk.sql": b"\xff",
    }.items():
        (folder / name).write_bytes(content)
    (folder / "empty").mkdir()
    return folder


WRONG: list[tuple[int, tuple[str, ...], str]] = [
    # what click refuses
    (2, ("nosuch",), "No such command"),
    (2, ("run", "extra"), "unexpected extra argument"),
    (2, ("run", "--nosuch"), "No such option"),
    (2, ("run", "--name"), "requires an argument; fix: see bridge run --help"),
    (2, ("ddl", "approve", "--target"), "requires an argument; fix: see bridge ddl approve --help"),
    (2, ("run", "--paused=1"), "fix: see bridge run --help"),
    (2, ("inspect", "--limit", "-1"), "--limit"),
    (2, ("inspect", "--partition", "x"), "--partition"),
    (2, ("verify", "--against", "x"), "log"),
    (2, ("quarantine", "show", "x"), "ID"),
    (2, ("quarantine", "drop", "--target", NOWHERE), "either ids"),
    (2, ("ddl", "approve"), "ID"),
    (2, ("status", "--name", "\udcff"), "not UTF-8"),
    # URLs
    (2, ("status",), "no target is given"),
    (2, ("status", "--target", ""), "no target is given"),
    *(
        (2, ("status", "--target", url), words)
        for url, words in {
            "h": "is not a URL",
            "mysql:///": "not a MySQL address",
            "postgresql://h/": "not a MySQL address",
            "mysql://host:abc/": "is not a URL",
            "mysql://host:99999/": "port",
            "mysql://host:0/": "port",
            "mysql://[::1/": "is not a URL",
            "mysql://a..b/": "names no host",
            "mysql://" + "a" * 70 + "/": "names no host",
            "mysql://u:a@b@h/": "%40",
            "mysql://h/?foo=bar": "foo",
            "mysql://h/?charset=latin1": "charset",
            "mysql://h/?read_timeout=x": "read_timeout",
            "mysql://h/?password=x": "BRIDGE_TARGET_PASSWORD",
            "mysql://h/?ssl_ca=/x": "target.tls",
        }.items()
    ),
    (3, ("status", "--target", NOWHERE), "does not answer"),
    (3, ("status", "--target", "mysql://nosuch.invalid/"), "does not answer"),
    (3, ("status", "--target", "mysql://h/?unix_socket=/nowhere"), "does not answer"),
    (3, ("reset", "--yes", "--target", NOWHERE), "does not answer"),
    (3, ("ddl", "list", "--target", NOWHERE), "does not answer"),
    (3, ("ddl", "skip", "7", "--target", NOWHERE), "does not answer"),
    (3, ("quarantine", "list", "--target", NOWHERE), "does not answer"),
    (3, ("quarantine", "drop", "1", "--yes", "--target", NOWHERE), "does not answer"),
    (3, ("verify", "--against", "source", "--target", NOWHERE, "--source", NOWHERE), "cannot be reached"),
    (2, ("verify", "--against", "source", "--target", NOWHERE), "--upstream"),
    (2, ("verify", "--target", NOWHERE, "--max-load", "x"), "max"),
    (2, ("verify", "--target", NOWHERE, "--input", "{files}/some.jsonl", "--protocol", "canal-json", "--fix-sql",
         "{files}/none/x"), "--fix-sql"),
    # settings
    (2, ("status", "--config", "{files}/none.toml"), "cannot be read"),
    (2, ("status", "--config", "{files}"), "cannot be read"),
    (2, ("status", "--config", "{files}/junk.toml"), "not UTF-8"),
    (2, ("status", "--config", "{files}/broken.toml"), "not TOML"),
    (2, ("status", "--config", "{files}/deep.toml"), "nested"),
    (2, ("status", "--config", "{files}/list.toml"), "target is a section"),
    (2, ("status", "--config", "{files}/type.toml"), "target.url"),
    (2, ("status", "--config", "{files}/date.toml"), "name"),
    (2, ("status", "--config", "{files}/range.toml"), "range.toml"),
    (2, ("status", "--config", "{files}/dotted.toml"), "quotes"),
    (2, ("status", "--set", "target"), "has no value"),
    (2, ("status", "--set", "=x"), "unknown setting"),
    (2, ("status", "--set", "a.b.c=x"), "unknown setting a"),
    (2, ("status", "--set", "stream=x"), "section"),
    (2, ("status", "--set", "stream.writers=x"), "stream.writers"),
    (2, ("status", "--set", "target.tls=on"), "target.tls"),
    (2, ("status", "--target", NOWHERE, "--set", "target.password_file={files}"), "target.password_file"),
    (2, ("status", "--target", NOWHERE, "--set", "target.password_file={files}/junk.password"), "not UTF-8"),
    (2, ("status", "--target", NOWHERE, "--set", "target.tls_ca=/x"), "target.tls"),
    (2, ("status", "--target", NOWHERE, "--set", "target.tls=verify-ca", "--set", "target.tls_ca={files}"), "tls_ca"),
    *(
        (2, ("replay", "--target", NOWHERE, "--input", "{files}/some.jsonl", *flags), words)
        for *flags, words in (
            *(("--protocol", "x", "unknown protocol"), ("--until", "1732165807", "1970-01-01")),
            *(("--filter", "no-dot", "quote the name"), ("--name", "", "at least 1 character")),
            ("--from-dump", "", "cannot be read"),
            ("--protocol", "canal-json", "--timezone", "Mars/Base", "Mars/Base"),
            ("--consistency", "x", "consistency"),
            ("--on-bad-message", "x", "on_bad_message"),
            *(
                (flag, moment, "neither a TSO")
                for flag in ("--from", "--until")
                for moment in ("soon", "", "99999999999999999999", "9999-01-01", "1969-12-31")
            ),
        )
    ),
    (2, ("verify", "--target", NOWHERE, "--input", "{files}/some.jsonl", "--fix-sql", "{files}"), "is a directory"),
    (2, ("ddl", "translate", "--input", "{files}/some.jsonl", "--flavour", "oracle-1"), "no known protocol"),
    (2, ("ddl", "translate", "--flavour", "mysql-8.0"), "stdin"),
    # sources
    (2, ("replay", "--target", NOWHERE), "no source is given"),
    (2, ("run", "--target", NOWHERE, "--set", "source.input={files}/some.jsonl"), "bridge replay"),
    (2, ("inspect", "--input", "{files}/none.jsonl"), "no capture file"),
    (2, ("inspect", "--input", "{files}/empty"), "holds no *.jsonl"),
    *((2, ("inspect", "--input", "{files}/" + f"{name}.jsonl"), "not a captured message")
      for name in ("junk", "array", "types", "huge", "base64", "null", "partition", "offset")),
    (2, ("inspect", "--input", "{files}/junk.toml"), "not a captured message"),
    (2, ("ddl", "translate", "--input", "{files}/junk.jsonl", "--flavour", "mysql-8.0"), "not a captured message"),
    (2, ("inspect", *KAFKA, "--set", "source.kafka.no.such=1"), 'No such configuration property: "no.such"'),
    (2, ("inspect", *KAFKA, "--set", "source.kafka.security.protocol=x"), "security.protocol"),
    (2, ("inspect", *KAFKA, "--set", "source.kafka.ssl.ca.location=/nowhere", "--set",
         "source.kafka.security.protocol=SSL"), "ssl.ca.location"),
    *(
        (2, (command, "--protocol", "canal-json", "--target", NOWHERE, *KAFKA, "--set", f"source.kafka.{wrong}"), words)
        for command in ("run", "replay")
        for wrong, words in {"no.such=1": "No such configuration property", "sasl.username=x": "sasl.mechanism"}.items()
    ),
]  # fmt: skip
"""Exit code, arguments, and words of the line."""


def one_line(ended: Ended, code: int, words: str) -> None:
    own = [line for line in ended.err.splitlines() if not line.startswith("bridge: protocol ")]
    assert ended.code == code, ended.err
    assert "Traceback" not in ended.err + ended.out
    assert len(own) == 1, ended.err
    assert own[0].startswith("bridge: ")
    assert words in own[0]


@pytest.mark.parametrize(
    ("code", "arguments", "words"), WRONG, ids=lambda x: " ".join(x)[:70] if isinstance(x, tuple) else ""
)
def test_what_is_wrong_is_said_in_one_line(files: Path, code: int, arguments: Sequence[str], words: str) -> None:
    """2 for wrong usage or settings, 3 for what does not answer; no traceback, and never 1."""
    one_line(bridge(*(part.replace("{files}", str(files)) for part in arguments)), code, words)


def test_check_says_it_in_its_own_lines(files: Path) -> None:
    """What is wrong with one part does not keep the others from being seen."""
    tls = ("--set", "target.tls=verify-ca", "--set", f"target.tls_ca={files}")
    for wrong in (("--target", NOWHERE), ("--target", NOWHERE, *tls), ()):
        ended = bridge("check", *wrong, "--input", str(files / "some.jsonl"))
        assert (ended.code, ended.err) == (2, "")
        assert "\nFAIL  " in ended.out
        assert "can be read: 1 message of 1 partition were sampled" in ended.out
    tls_to_kafka = ("security.protocol=SSL", "ssl.ca.location=/nowhere")
    sets = [word for each in tls_to_kafka for word in ("--set", f"source.kafka.{each}")]
    ended = bridge("check", "--target", NOWHERE, *KAFKA, *sets)
    assert (ended.code, ended.err) == (2, "")
    assert "\nFAIL  the Kafka client does not accept its settings" in ended.out


@pytest.mark.parametrize(
    ("number", "command", "code", "words"),
    [
        (signal.SIGINT, "run", 0, "bridge: stopped; `bridge status` tells what is in the target"),
        (
            signal.SIGTERM,
            "replay",
            4,
            "bridge: interrupted before the end of the input; `bridge status` tells what is in the target; the same",
        ),
    ],
)
def test_a_signal_while_kafka_is_looked_at(tmp_path: Path, number: int, command: str, code: int, words: str) -> None:
    """Before anything has begun the command ends as it does later, and claims nothing of a target it has not asked."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        arguments = (command, "--target", NOWHERE, "--bootstrap-servers", servers, "--topic", "t")
        with Process(tmp_path, *arguments) as process:
            silent.settimeout(SECONDS)
            silent.accept()[0].close()
            process.signal(number)
            assert process.wait() == code, process.log
    assert any(line.startswith(words) for line in process.lines), process.log
    assert "Traceback" not in process.log, process.log


def test_a_signal_while_the_target_is_waited_for(tmp_path: Path) -> None:
    """A target that is away at the start is retried and named; a stop ends the waiting."""
    arguments = ("run", "--target", NOWHERE, *KAFKA, "--protocol", "canal-json")
    with Process(tmp_path, *arguments) as process:
        process.says(r"retrying.*on=target.*target 127\.0\.0\.1:1 does not answer for")
        process.signal(signal.SIGTERM)
        assert process.wait() == 0, process.log
    assert "bridge: stopped; `bridge status` tells what is in the target" in process.log
    assert "Traceback" not in process.log, process.log


@pytest.mark.parametrize("text", [b"\xff", b""])
def test_statements_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    """stdin may be binary, or closed."""
    for stdin in (io.TextIOWrapper(io.BytesIO(text), "utf-8"), None):
        monkeypatch.setattr(sys, "stdin", stdin)
        ended = bridge("ddl", "translate", "--flavour", "mysql-8.0")
        one_line(ended, 2, "stdin")


@pytest.mark.parametrize("answer", ["n\n", "", "maybe\n\n"])
def test_a_question_without_a_yes(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """Nothing is changed, which is no 1 either: that would say that the pipeline is unknown."""
    for command in (("reset",), ("quarantine", "drop", "1")):
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        ended = bridge(*command, "--target", NOWHERE)
        assert ended.code == 2
        assert ended.last_line.endswith("bridge: nothing was changed; fix: answer y, or give --yes")


def test_a_user_without_rights(target: str) -> None:
    """What the target refuses is said, and is a failure like any other."""
    with admin(target) as session:
        ProgressTable("bridge").create(session)
        session.execute("CREATE USER guest@'%'")
        session.execute("GRANT INSERT ON _bridge.* TO guest@'%'")
        session.execute("GRANT SELECT ON _bridge.version TO guest@'%'")
        guest = str(make_url(target).set(username="guest", password=None))
        try:
            for command in (("status",), ("ddl", "list"), ("reset", "--yes"), ("quarantine", "list")):
                one_line(bridge(*command, "--target", guest), 3, "denied to user")
        finally:
            session.execute("DROP USER guest@'%'")


# --- failures that nobody expected


COMMANDS: dict[str, tuple[Any, str, tuple[str, ...]]] = {
    "run": (load, "load_settings", ("run",)),
    "replay": (load, "load_settings", ("replay",)),
    "verify": (load, "load_settings", ("verify",)),
    "status": (load, "load_settings", ("status",)),
    "inspect": (load, "load_settings", ("inspect",)),
    "check": (load, "load_settings", ("check",)),
    "reset": (load, "load_settings", ("reset",)),
    "demo": (demo, "run_demo", ("demo",)),
    "quarantine": (load, "load_settings", ("quarantine", "list")),
    "ddl": (load, "load_settings", ("ddl", "list")),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_bug_is_called_one(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """70, one line, and below it where it happened, in lines that cannot pass for others."""
    module, name, arguments = COMMANDS[command]

    def fail(*_: object, **__: object) -> None:
        raise KeyError("first\n2026-01-01T00:00:00Z [info     ] all is well")

    monkeypatch.setattr(module, name, fail)
    ended = bridge(*arguments)
    first, *rest = ended.err.splitlines()
    assert (ended.code, ended.out) == (70, "")
    assert first.startswith("bridge: this is a bug in the bridge: KeyError: 'first")
    assert "report it" in first
    assert rest[0] == "  | Traceback (most recent call last):"
    assert all(line.startswith("  | ") for line in rest)


def test_a_bug_tells_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a URL's nor a password that some value holds."""
    monkeypatch.setenv("BRIDGE_TARGET_PASSWORD", "s3cret'1")

    def fail(target: Any, *_: object) -> None:
        raise ValueError(f"{target._url.password} {target._url.password!r} mysql://u:s3cret2@h/?x=s3cret3")

    monkeypatch.setattr("bridge.commands.status.read_status", fail)
    ended = bridge("status", "--target", NOWHERE)
    assert ended.code == 70
    assert "s3cret" not in ended.err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 3, "no memory is left"),
        (OSError(28, "No space left on device", "/tmp/x"), 3, "/tmp/x"),
        (PermissionError(13, "Permission denied", "/tmp/x"), 3, "/tmp/x"),
        (BrokenPipeError(32, "Broken pipe"), 70, "a bug"),
        (FileNotFoundError(2, "No such file"), 70, "a bug"),
        (RecursionError(), 70, "a bug"),
        (StoppedError("it stopped"), 3, "it stopped"),
    ],
)
def test_every_end_has_its_code(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, words: str
) -> None:
    """Also those that are neither the bridge's errors nor bugs."""

    def end() -> None:
        raise error

    assert exits.exit_code(end) == code
    assert words in capsys.readouterr().err.splitlines()[0]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no /dev/full")
def test_a_stdout_that_takes_nothing(files: Path) -> None:
    """A reader that goes away, as head does, ends the command silently; a full disk is said."""
    command = [sys.executable, "-m", "bridge", "inspect", "--input", str(files / "some.jsonl")]
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone, Path("/dev/full").open("wb") as full:
        ends = [subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True) for out in (gone, full)]
        said = [end.communicate(timeout=120)[1] for end in ends]
    assert [end.returncode for end in ends] == [141, 3]
    assert said[0] == ""
    assert said[1].startswith("bridge: the machine refuses: [Errno 28]")


# --- anything at all

words = st.one_of(
    st.sampled_from(
        ["run", "replay", "status", "check", "inspect", "--set", "--target", "--config", "--name", "--limit"]
    ),
    st.sampled_from([NOWHERE, "mysql://h:x/", "stream.writers=0", "x=y", "/", "/dev/null", "--json", "-1", ""]),
    st.text(alphabet=st.characters(exclude_characters="\0"), max_size=8),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["status", "inspect", "reset", "check", "ddl", "quarantine", "replay"]), st.lists(words, max_size=6)
)
def test_any_arguments(first: str, rest: list[str]) -> None:
    """A code of the contract, and no traceback."""
    ended = _quietly(lambda: bridge(first, *rest))
    assert ended.code in {0, 2, 3}, (ended.code, ended.err)
    assert "Traceback" not in ended.err


def _quietly(run: Callable[[], Ended]) -> Ended:
    before, sys.stdin = sys.stdin, io.StringIO()
    try:
        return run()
    finally:
        sys.stdin = before


def test_inspect_says_that_there_is_nothing_to_show(tmp_path: Path) -> None:
    """Instead of a head without lines, as where the first messages are of other tables."""
    some = (
        "inspect",
        "--input",
        str(write_capture(tmp_path / "shop")),
        *("--timezone", "UTC", "--offset", "5", "--limit", "1"),
    )
    assert "nothing to show" not in bridge(*some).out
    assert "nothing to show" in bridge(*some, "--filter", "no.such").out


def test_json_goes_alone_to_stdout(files: Path) -> None:
    """One document, also when there is nothing."""
    ended = bridge("inspect", "--json", "--input", str(files / "some.jsonl"), "--limit", "1")
    assert json.loads(ended.out)
