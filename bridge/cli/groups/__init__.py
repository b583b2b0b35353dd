"""Commands that have commands: `bridge config`, `ctl`, `ddl`, `quarantine`."""
