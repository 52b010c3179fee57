"""Runs given / when / then cases (tests/cases/README.md) against the product, on a real server."""
