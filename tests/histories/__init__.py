"""Histories of every workflow shape, recorded from released versions and replayed in CI."""
