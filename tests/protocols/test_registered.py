"""Every list that speaks of protocols has all of them: whoever adds one is told here what is missing."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Collection
from importlib import import_module
from pathlib import Path

import pytest

from bridge.cli import options
from bridge.errors import UsageError
from bridge.events import Event, Undecodable
from bridge.protocols import PROTOCOLS, DecodeError, DecodeOptions, decode_message, make_decoder
from bridge.protocols.canal.decoder import CanalJsonDecoder
from bridge.protocols.decoder import MAX_CACHED
from bridge.protocols.detect import recognise_message
from bridge.protocols.fast.decoder import FastDecoder
from bridge.protocols.plain_decoder import PlainDecoder
from tests.generated.wires import WIRES
from tests.protocols.test_hostile_messages import FOLDERS
from tests.protocols.test_left_out import MESSAGES
from tests.protocols.test_reasons import ROW_OF, SCHEMA_CHANGE_OF
from tests.support.wire import canal, reason

ROOT = Path(__file__).parents[2]


def page(path: str, pattern: str) -> Callable[[], Collection[str]]:
    """What a page lists."""
    return lambda: set(re.findall(pattern, (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE))


def named(text: str) -> Collection[str]:
    """The words of a text that look like the name of one."""
    return set(re.findall(r"[a-z]+(?:-[a-z]+)*", text)) - {"auto", "or", "default"}


def line_of(path: str, start: str) -> str:
    """The line of a file that begins so."""
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(start))


LISTS: dict[str, Callable[[], Collection[str]]] = {
    "the help of --protocol in bridge/cli/options.py": lambda: named(
        options.SETTINGS_FLAGS["protocol"].__metadata__[0].help
    ),
    "the comment in conf/bridge.toml": lambda: named(line_of("conf/bridge.toml", "protocol = ").partition("#")[2]),
    "the table in bridge/manual/protocols.md": page("bridge/manual/protocols.md", r"^\| `([a-z][a-z-]*)` \|"),
    "MESSAGES in tests/protocols/test_left_out.py": lambda: MESSAGES,
    "WIRES in tests/generated/wires.py": lambda: {wire.protocol for wire in WIRES.values()},
    "FOLDERS in tests/protocols/test_hostile_messages.py": lambda: FOLDERS,
    "ROW_OF in tests/protocols/test_reasons.py": lambda: ROW_OF,
    "SCHEMA_CHANGE_OF in tests/protocols/test_reasons.py": lambda: [
        *SCHEMA_CHANGE_OF,
        "ckafka",  # whose schema changes are Canal's
    ],
}


@pytest.mark.parametrize("listed", LISTS)
def test_a_list_has_every_protocol(listed: str) -> None:
    """Those that are registered, and no other."""
    assert set(LISTS[listed]()) == set(PROTOCOLS)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_each_has_a_folder_of_its_own(name: str) -> None:
    """With its facts, its README and its line in the README above; its decoder is there."""
    module, made = PROTOCOLS[name].decoder.split(":")
    folder = ROOT / "bridge/protocols" / module.partition(".")[0]
    assert PROTOCOLS[name] in vars(import_module(f"bridge.protocols.{folder.name}.recognition")).values()
    assert (folder / "README.md").exists()
    assert f"[{folder.name}]({folder.name}/README.md)" in (folder.parent / "README.md").read_text(encoding="utf-8")
    assert hasattr(import_module(f"bridge.protocols.{module}"), made)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_its_own_messages_are_recognised(name: str) -> None:
    """By the protocol itself, not by one that is asked before it."""
    seen = recognise_message(*MESSAGES[name]("d", 1))
    assert seen is not None
    assert seen.protocol == name


def test_unknown_protocol() -> None:
    """An unknown name lists the known ones and the closest."""
    with pytest.raises(UsageError) as refusal:
        make_decoder("canal_jsn", DecodeOptions("UTC"))
    assert f"did you mean canal-json? known are {', '.join(sorted(PROTOCOLS))}" in str(refusal.value)


@pytest.mark.parametrize(
    "failure",
    [
        RecursionError("maximum"), MemoryError(), OverflowError("big"), KeyError("scm"), IndexError("end"),
        TypeError("no"), AttributeError("no"), ValueError(""), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        ZeroDivisionError(), RuntimeError("lz4"),
    ],
)  # fmt: skip
def test_every_failure_becomes_a_reason(failure: Exception) -> None:
    """Whatever fails inside a decoder leaves it as a DecodeError with words, and the message as one BAD event."""

    class Failing(PlainDecoder):
        def parse(self, _key: bytes | None, _value: bytes | None) -> list[Event]:
            raise failure

    decoder = Failing(DecodeOptions(None))
    with pytest.raises(DecodeError, match=r"malformed message: .+"):
        decoder.decode(b"", b"")
    [event] = decode_message(FastDecoder(decoder), b"", b"\1")
    assert event == Undecodable("malformed", reason(event), message_key="", message_value="AQ==")


def wanted(schema: str, table: str) -> bool:
    return (schema, table) == ("d", "t")


def test_options_travel() -> None:
    """Options reach executors by pickle."""
    options = DecodeOptions("Asia/Shanghai", wanted)
    assert pickle.loads(pickle.dumps(options)) == options


def test_caches_are_bounded() -> None:
    """A flood of table names does not fill the memory."""
    decoder = CanalJsonDecoder(DecodeOptions(None))
    for number in range(MAX_CACHED + 10):
        decoder.decode(b"", canal("INSERT", {"id": ("int", "1")}, table=f"t{number}"))
    assert len(decoder._wanted) < 100
    assert len(decoder.layouts) < 100
