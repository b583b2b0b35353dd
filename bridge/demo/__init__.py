"""The demo: a bank that never loses money, and a bridge that replicates it and is killed meanwhile."""

from bridge.demo.run import run_demo

__all__ = ["run_demo"]
