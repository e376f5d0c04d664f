"""The command line: its commands parse, call the rooms below and print."""
