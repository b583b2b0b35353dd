"""What SIGTERM and Ctrl-C do to a command, whatever it waits for."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = str(Path(sys.executable).with_name("bridge"))
"""The command as it is installed."""
PROGRAM = """
import signal, sys, threading, time
from bridge.cli import pipeline_run
from bridge.cli.pipeline_run import StopSignals
pipeline_run.BREAK_OFF_SECONDS, pipeline_run.END_SECONDS, pipeline_run._CLIENT_SECONDS = 1.0, 2.0, 0.3
asked, broken_off = threading.Event(), threading.Event()
wait = sys.argv[1]

def say(what):
    print(what, flush=True)

def stubborn():
    while True:
        time.sleep(1)

with StopSignals(asked.set, broken_off.set, lambda: say("cleaned up"), code=4):
    say("ready")
    if wait == "nothing":
        asked.wait()
    elif wait == "the target":
        broken_off.wait()
    elif wait == "a lock for ever":
        lock = threading.Lock(); lock.acquire(); lock.acquire()
    elif wait == "a thread that is left":
        threading.Thread(target=stubborn).start()
        asked.wait()
say("ended")
sys.exit(0)
"""


def run(wait: str, *numbers: int, apart: float = 0.7) -> tuple[int, list[str], float]:
    """Exit code, what was said after "ready", and seconds from the last signal on.  apart: seconds between signals."""
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, wait], stdout=subprocess.PIPE, text=True)
    with program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            for number in numbers[:-1]:
                program.send_signal(number)
                time.sleep(apart)
            began = time.monotonic()
            program.send_signal(numbers[-1])
            code = program.wait(20)
        finally:
            program.kill()
        said = program.stdout.read().split("\n")[:-1]
    return code, said, time.monotonic() - began


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("wait", "code", "said"),
    [
        ("nothing", 0, ["ended"]),
        ("the target", 0, ["ended"]),
        ("a lock for ever", 4, ["cleaned up"]),
        ("a thread that is left", 4, ["ended", "cleaned up"]),
    ],
)
def test_a_stop_comes_to_its_end(number: int, wait: str, code: int, said: list[str]) -> None:
    """It is asked; then what it waits for is broken off; then it ends all the same, with the exit code of a stop."""
    assert run(wait, number)[:2] == (code, said)


@pytest.mark.parametrize("wait", ["the target", "a lock for ever"])
def test_a_second_signal_ends_it_at_once(wait: str) -> None:
    """Without waiting for anything."""
    code, said, seconds = run(wait, signal.SIGTERM, signal.SIGINT)
    assert (code, said) == (130, ["cleaned up"])
    assert seconds < 0.5


@pytest.mark.parametrize("apart", [0.0, 0.01])
@pytest.mark.parametrize("wait", ["nothing", "the target"])
def test_signals_at_the_same_moment_are_one_stop(wait: str, apart: float) -> None:
    """`timeout` signals the process and then its group; so do others that run commands.  The last one may come while
    the interpreter ends, and has taken back the handlers."""
    assert run(wait, signal.SIGTERM, signal.SIGINT, signal.SIGTERM, apart=apart)[:2] == (0, ["ended"])


def test_signals_of_a_work_that_has_ended_end_nothing() -> None:
    """The command's own end is not cut short."""
    program = PROGRAM.replace('say("ended")', 'signal.raise_signal(signal.SIGTERM); time.sleep(0.4); say("ended")')
    found = subprocess.run([sys.executable, "-c", program.replace("asked.wait()", "pass"), "nothing"],
                           stdout=subprocess.PIPE, text=True, timeout=20, check=False)  # fmt: skip
    assert (found.returncode, found.stdout) == (0, "ready\nended\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("command", "code"), [("run", 0), ("replay", 4)])
@pytest.mark.parametrize("program", [[sys.executable, "-m", "bridge"], [SCRIPT]], ids=["module", "script"])
def test_a_signal_while_modules_are_imported_is_a_clean_stop(
    tmp_path: Path, program: list[str], number: int, command: str, code: int
) -> None:
    """The signals are taken before anything else: here the first library is what does not return."""
    (tmp_path / "typer.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen([*program, command], stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "importing\n"
            process.send_signal(number)
            assert process.wait(20) == code
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("command", "code"), [("run", 0), ("replay", 4)])
def test_a_signal_before_the_settings_are_read_is_a_clean_stop(number: int, command: str, code: int) -> None:
    """What follows the start takes half a second.  A signal then ended the process with 143."""
    program = (
        "import os\nfrom bridge.cli import app\n"
        f"app.page_of = lambda *_: os.kill(os.getpid(), {int(number)})\napp.main(['{command}'])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (code, "", "")


def test_a_signal_after_an_error_before_any_work_is_not_shown() -> None:
    """The interpreter waits for Spark's start when it ends: Ctrl-C then printed a traceback behind the error."""
    program = (
        "import atexit, os, signal\nfrom bridge.cli import app\nfrom bridge.commands import replicate\n"
        "from bridge.errors import SourceError\n"
        "def refuse(*_, **__):\n    raise SourceError('no topic', fix='make it')\n"
        "replicate.assemble = refuse\natexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        f"app.main({list(WAITING)})"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (found.returncode, found.stderr) == (3, "bridge: no topic; fix: make it\n")


WAITING = ("run", "--bootstrap-servers", "127.0.0.1:1", "--topic", "t", "--target", "mysql://u@127.0.0.1:1/")


TELLING = "import time; from bridge.cli.pipeline_run import tell_while_alive; tell_while_alive(); time.sleep(60)"


@pytest.mark.parametrize(
    ("is_abstract", "program"), [(False, ("-c", TELLING)), (True, ("-m", "bridge", *WAITING))], ids=["file", "name"]
)
def test_it_is_told_that_the_bridge_is_alive(tmp_path: Path, is_abstract: bool, program: tuple[str, ...]) -> None:
    """By a datagram to the socket that it names, a file or a name that is no file, again and again, while the bridge
    waits for a Kafka and a target that are away.  Nobody else has to listen."""
    name = f"{'@' if is_abstract else ''}{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0", 1))
        manager.settimeout(60)
        environment = {**os.environ, "NOTIFY_SOCKET": name}
        with subprocess.Popen([sys.executable, *program], env=environment, stderr=subprocess.DEVNULL) as process:
            try:
                assert [manager.recv(100) for _ in range(2)] == [b"READY=1\nWATCHDOG=1"] * 2
                assert process.poll() is None
            finally:
                process.terminate()


BEFORE_WORK = """
import os, signal, sys, time
from bridge.cli import pipeline_run
from bridge.commands import replicate
from bridge.pipeline.heartbeat import BEFORE_PROGRESS

def assemble(*_, **__):
    try:
        if sys.argv[1] == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
    except KeyboardInterrupt:
        pass
    raise SystemError("describe_topics returned a result with an exception set")

replicate.assemble = assemble
print(pipeline_run.run_pipeline(None, None, once=True, code=4) is BEFORE_PROGRESS)
"""


@pytest.mark.parametrize(("how", "code", "said"), [("signal", 0, "True\n"), ("nothing", 1, "")])
def test_a_signal_that_interrupts_a_client_in_c(how: str, code: int, said: str) -> None:
    """It may come as a SystemError, and is a clean stop all the same; without a signal that is a bug."""
    ended = subprocess.run(
        [sys.executable, "-c", BEFORE_WORK, how], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (code, said), ended.stderr
    assert ("SystemError" in ended.stderr) is (how == "nothing")
