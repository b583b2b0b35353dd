"""`python -m bridge`."""

from bridge.cli.app import main

main()
