"""Loads the object code of the compiled functions.

Numba makes it, once for each user, version and processor, and is not loaded otherwise: to import it, and to let it load
what it had compiled, took 0.4 s of each process; to load object code takes 0.04 s.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import llvmlite
import llvmlite.binding as llvm

from bridge.cache import cache_folder, cached, remove_unused

_PREFIX: Final = "compiled-"
_UNUSED_SECONDS: Final = 30 * 86_400
"""After this, what is kept is of another version."""
FILE: Final = "functions.o"
"""The file in the folder of the compiled functions."""
_DIGEST: Final = 16
"""The size of the digest that the file begins with, in bytes."""


def are_compiled() -> bool:
    """Tells whether all functions are compiled."""
    with suppress(OSError, RuntimeError):  # nobody's home
        return (cache_folder() / _name() / FILE).exists()
    return False


@cache
def loaded_functions() -> llvm.ExecutionEngine:
    """Gives what knows the addresses of all functions, and holds them; compiles them where that was not done before."""
    machine = _machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(kept_code(lambda: _compiled(machine))))
    engine.finalize_object()
    return engine


def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name, features = _processor()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=name, features=features, opt=3, codemodel="jitdefault", jit=True
    )


@cache
def _processor() -> tuple[str, str]:
    """Gives the name and the features of the processor to compile for: this machine's, or those of Numba's own
    variables, by which an image fits every machine ("generic")."""
    if name := os.environ.get("NUMBA_CPU_NAME"):
        return name, os.environ.get("NUMBA_CPU_FEATURES", "")
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@cache
def _name() -> str:
    """Gives the name of the folder for these functions and this processor, since homes may be shared."""
    digest = blake2b(repr((llvmlite.__version__, *_processor())).encode(), digest_size=8)
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return f"{_PREFIX}{digest.hexdigest()}"


def kept_code(compile_all: Callable[[], bytes]) -> bytes:
    """Gives the object code that is kept, which `compile_all` makes where there is none.

    A disk that takes nothing, or a user without a home, costs only time.
    """
    with suppress(OSError, RuntimeError):
        for _ in range(2):
            folder = cached(_name(), lambda made: _keep(made / FILE, compile_all()))
            remove_unused(_PREFIX, _UNUSED_SECONDS)
            content = (folder / FILE).read_bytes()
            if content[:_DIGEST] == _digest(content[_DIGEST:]):
                return content[_DIGEST:]
            shutil.rmtree(folder)  # a machine that lost its power may have lost what it had written
    return compile_all()


def _keep(file: Path, code: bytes) -> None:
    file.write_bytes(_digest(code) + code)


def _digest(code: bytes) -> bytes:
    return blake2b(code, digest_size=_DIGEST).digest()


@cache
def _compiled(machine: Any) -> bytes:
    from bridge.protocols.fast.compiled.building import object_code  # loads Numba

    return object_code(machine)
