"""The command line `turngate`."""

from turngate.cli.app import main

__all__ = ["main"]
