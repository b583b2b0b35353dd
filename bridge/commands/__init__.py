"""What each command does, apart from the command line."""
