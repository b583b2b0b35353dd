"""Processes that read few messages do not load the compiled functions; those that read many do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_DECODE = """
import sys
from bridge.protocols import DecodeOptions, make_decoder
from bridge.protocols.fast import code_cache
message = {messages}[0]
decoder = make_decoder("canal-json", DecodeOptions("UTC"))
for _ in range({lots}):
    decoder.decode_batch([None] * 1000, [message] * 1000)
print("numba" in sys.modules, code_cache.are_compiled(), len(decoder.decode_batch([None] * 1000, [message] * 1000)[1]))
"""
ROW = (
    b'{"id":0,"database":"d","table":"t","pkNames":["id"],"isDdl":false,"type":"INSERT","es":1,"ts":1,"sql":"",'
    b'"sqlType":{"id":4},"mysqlType":{"id":"int"},"old":null,"data":[{"id":"1"}],"_tidb":{"commitTs":470611868434825218}}'
)


def decoded(lots: int, cache: Path) -> str:
    """What a new process says that decodes so many lots of 1,000 rows."""
    code = _DECODE.format(messages=[ROW], lots=lots)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"XDG_CACHE_HOME": str(cache)}
    ).stdout.strip()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which everything is compiled."""
    folder = tmp_path_factory.mktemp("cache")
    loads = [sys.executable, "-m", "bridge.protocols.fast.loading"]
    subprocess.run(loads, check=True, env={"XDG_CACHE_HOME": str(folder)})
    return folder


def test_few_messages_load_nothing(compiled: Path) -> None:
    """Nor do many, where nothing is compiled yet."""
    assert decoded(48, compiled) == "False True 1000"
    assert decoded(60, compiled / "empty") == "False False 1000"


def test_many_messages_load_what_is_compiled(compiled: Path) -> None:
    """From then on they are read together."""
    assert decoded(60, compiled) == "True True 0"


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    """Everything is compiled again, each time."""
    tmp_path.joinpath("bridge").write_text("a file in the place of the folder")
    assert decoded(501, tmp_path) == "True False 0"
