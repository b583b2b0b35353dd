"""The demo: a bank that never loses money, replicated by a bridge that is killed in mid-stream."""

from bridge.demo.run import run_demo

__all__ = ["run_demo"]
