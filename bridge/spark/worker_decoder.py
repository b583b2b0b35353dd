"""Decodes in Spark's Python workers, which outlive their tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from uuid import uuid4
from zipimport import zipimporter

import pyarrow as pa

from bridge.protocols import DecodeOptions, Decoder, make_decoder
from bridge.protocols.batch_decode import EventDecoder, Messages, decode_messages, do_nothing
from bridge.spark.process_memory import freeze_loaded_modules, return_freed_memory


def event_decoder(protocol: str, options: DecodeOptions) -> EventDecoder:
    """Makes a decoder that can be sent to Spark's Python workers."""

    name = uuid4().hex

    def decode(messages: Iterable[Messages]) -> Iterator[pa.Table]:
        keep_zip_directories()
        decoder = decoder_named(name, protocol, options)
        for lot in messages:
            yield decode_messages(decoder, lot, return_freed_memory)

    return decode


_decoders: dict[str, Decoder] = {}


def decoder_named(name: str, protocol: str, options: DecodeOptions) -> Decoder:
    """Returns this process's decoder of that name, and makes it at the first call.

    Spark's Python workers outlive their tasks, so a decoder keeps what it has learned of the messages.  Only the
    decoder that was used last is kept.
    """
    if name not in _decoders:
        decoder = make_decoder(protocol, options)
        freeze_loaded_modules()
        _decoders.clear()
        _decoders[name] = decoder
    return _decoders[name]


def keep_zip_directories() -> None:
    """Keeps the directories of zip files that modules are imported from.

    PySpark drops all import caches at every task.  Python then reads the directory of a zip on the path (pyspark.zip)
    again, entry by entry: half of the time of a decoding worker (py-spy).  The zips do not change while a worker lives.
    """
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter):
            finder.invalidate_caches = do_nothing  # type: ignore[method-assign]
