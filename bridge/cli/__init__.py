"""The command line: commands, their flags, and how results are shown."""
