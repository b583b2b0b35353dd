"""`bridge`, and `python -m bridge`."""

import sys

from bridge.cli.early_stop import end_before_work


def main() -> None:
    """Takes the signals, then imports the command line, and runs it."""
    end_before_work(sys.argv[1:])
    from bridge.cli.app import main as run_command

    run_command()


if __name__ == "__main__":
    main()
