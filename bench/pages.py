"""Tool results of 4 KB that look like text: neither one letter again and again nor noise."""

from __future__ import annotations

import random

PAGE_BYTES = 4096
_SYLLABLES = ("ar", "be", "con", "de", "el", "fi", "gen", "ho", "in", "ka", "lo", "mar", "ne", "or", "pre", "qui", "ro")
_WORDS = [first + second + third for first in _SYLLABLES for second in _SYLLABLES for third in ("", "ing", "s")]


def page(number: int, size: int = PAGE_BYTES) -> str:
    """Return page `number`: always the same, and different from the others. Text like this packs to about a third."""
    chosen = random.Random(number)
    text = ""
    while len(text) < size:
        text += " ".join(chosen.choices(_WORDS, k=100)) + ".\n"
    return text[:size]
