"""Processes that read few messages do not load the compiled functions; those that read many do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bridge.cache import cache_folder
from bridge.protocols.fast.compiled import native_code
from bridge.protocols.fast.compiled.functions import fill_slots
from bridge.protocols.fast.compiled.native_code import FILE, kept_code, loaded_functions

_DECODE = """
import sys
from bridge.protocols import DecodeOptions, make_decoder
message = {messages}[0]
decoder = make_decoder("canal-json", DecodeOptions("UTC"))
for _ in range({lots} + 1):
    left = len(decoder.decode_batch([None] * 1000, [message] * 1000)[1])
print(left, *(name for name in ("llvmlite", "numba") if name in sys.modules))
"""
ROW = (
    b'{"id":0,"database":"d","table":"t","pkNames":["id"],"isDdl":false,"type":"INSERT","es":1,"ts":1,"sql":"",'
    b'"sqlType":{"id":4},"mysqlType":{"id":"int"},"old":null,"data":[{"id":"1"}],"_tidb":{"commitTs":470611868434825218}}'
)


def test_setup_compiles_decoding() -> None:
    """The workers of a bridge with few messages do not: to compile takes longer than to parse those."""
    code = (
        "import sys; from bridge.cli.app import main; from bridge.spark import class_archive\n"
        "class_archive.make_archive = lambda: 'made'\n"
        "try: main(['setup'])\nfinally: print('bridge.protocols.fast.loading' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["classes", "made", "True"]


def test_an_image_fits_every_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it is told to compile for counts, when it is built and when it runs, and not the builder's processor."""
    own = native_code._processor.__wrapped__()
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    assert native_code._processor.__wrapped__() == ("generic", "") != own


_AFTER_LOADING = """
import sys
import bridge.protocols.fast.loading
before = set(sys.modules)
from bridge.protocols import PROTOCOLS, DecodeOptions, make_decoder
import bridge.protocols.batch_decode
for name in PROTOCOLS:
    make_decoder(name, DecodeOptions("UTC"))
print(*sorted(set(sys.modules) - before))
"""


def test_a_parent_of_workers_loads_everything_that_decoding_needs() -> None:
    """What it has loaded, the workers that it forks have: none of them imports a decoder again."""
    left = subprocess.run([sys.executable, "-c", _AFTER_LOADING], capture_output=True, text=True, check=True).stdout
    assert left.split() == []


def decoded(lots: int, cache: Path) -> str:
    """What a new process says that decodes so many lots of 1,000 rows."""
    code = _DECODE.format(messages=[ROW], lots=lots)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"XDG_CACHE_HOME": str(cache)}
    ).stdout.strip()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which everything is compiled: a copy of this user's."""
    loaded_functions()
    folder = tmp_path_factory.mktemp("cache")
    (found,) = cache_folder().glob(f"{native_code._name()}/{FILE}")
    shutil.copytree(found.parent, folder / "bridge" / found.parent.name)
    return folder


@pytest.mark.soak
def test_very_many_messages_pay_for_compiling(tmp_path: Path) -> None:
    """In the same process, and in the next one, which needs fewer."""
    assert decoded(501, tmp_path) == "0 llvmlite numba"
    assert decoded(9, tmp_path) == "0 llvmlite"


def test_few_messages_load_nothing(compiled: Path) -> None:
    """They are all left to the plain path."""
    assert decoded(6, compiled) == "1000"


def test_many_messages_load_what_is_compiled(compiled: Path) -> None:
    """From then on they are read together; Numba is not loaded for that."""
    assert decoded(9, compiled) == "0 llvmlite"


def test_where_nothing_is_compiled_many_messages_do_not_pay_for_it(tmp_path: Path) -> None:
    """They are left to the plain path."""
    assert decoded(60, tmp_path) == "1000 llvmlite"


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is compiled again, each time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tmp_path.joinpath("bridge").write_text("a file in the place of the folder")
    for code in (b"once", b"again"):
        assert kept_code(lambda code=code: code) == code


@pytest.mark.parametrize("left", [0, 8, 100])
def test_what_a_lost_disk_left_of_a_file_is_compiled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """A file that is cut is not loaded."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kept_code(lambda: bytes(100)) == bytes(100)
    (file,) = tmp_path.glob(f"bridge/*/{FILE}")
    file.write_bytes(file.read_bytes()[:left])
    assert kept_code(lambda: b"anew") == b"anew"
    assert kept_code(lambda: b"never") == b"anew"


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((3, 2), np.int64),
        np.zeros((3, 3), np.int32),
        np.zeros(6, np.int32),
        np.zeros((2, 3), np.int32).T,
        np.zeros((6, 2), np.int32)[::2],
    ],
)
def test_an_array_of_another_kind_is_refused(wrong: np.ndarray) -> None:
    """Compiled functions would read beside it."""
    with pytest.raises(TypeError, match="an argument of fill_slots is"):
        fill_slots(np.zeros(64, np.uint8), wrong, 0, 0, np.zeros(4, np.int32), 4)
