"""The command line: argv, colour, progress and exit codes."""

from puncta.cli._main import main

__all__ = ["main"]
