"""Texts of models and people inside markdown: shown as they are, never obeyed.

Made for the Temporal UI, which renders details in a narrow frame. There inline code keeps its quotes straight and
wraps, while a fenced block runs out of sight to the right, which is where somebody would hide the end of a command.
So JSON stands in inline code, and in prose every sign that acts is written as an entity.
"""

from __future__ import annotations

import json
import re
from typing import Any

_ACTS = re.compile(
    r"[\\`*\[\]<>#|~&{}$^]"
    r"|(?<![^\W_])_|_(?![^\W_])"  # not within snake_case
    r"|--+|://|www\."  # a dash made of two, and links
    r"|^[-+=]|^\d+[.)]"  # lists and headings
)
_JOINERS = "\u200c\u200d"
"""Needed inside emoji and in several scripts."""
_LINE_END = re.compile(r"(?<!\\)(?:\\\\)*\\n")
_MORE_SPACES = re.compile(r"(?<= ) ")
_FIXED_SPACE = "\u00a0"


def visible(text: str) -> str:
    r"""Show control characters, unusual spaces and direction marks as \uXXXX.

    JSON text stays the same JSON: these characters stand only inside its strings.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in _JOINERS else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def prose(text: str) -> str:
    """Return a text of one or several lines."""
    return "\n".join(_line(line) for line in text.strip("\n").splitlines())


def line(text: str) -> str:
    """Return a text on one line, for a cell of a table or an entry of a list."""
    return _line(" ".join(text.split()))


def _line(text: str) -> str:
    text = text.expandtabs(4)
    bare = text.lstrip()
    indent = "&#160;" * (len(text) - len(bare))
    return indent + _ACTS.sub(_entities, visible(bare))


def _entities(found: re.Match[str]) -> str:
    return "".join(char if char.isalnum() else f"&#{ord(char)};" for char in found[0])


def code(text: str) -> str:
    """Return one line of text, not empty, as inline code, whatever backticks it holds.

    The fence is the shortest run that the text doesn't hold: three or more at the start of a line look like a block.
    """
    runs = {len(run) for run in re.findall("`+", text)}
    fence = "`" * next(length for length in range(1, len(runs) + 2) if length not in runs)
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def json_to_read(value: Any, most: int = 10_000) -> list[str]:
    r"""Return JSON as lines to read: a text breaks after each \n in it, an object or a list when it is long.

    What is over `most` characters is missing, so that looking at a call costs little however large it is.
    """
    whole = json.dumps(value, ensure_ascii=False)
    text = visible(whole[:most])
    if isinstance(value, str):
        lines = _broken(text)
    elif len(text) <= 80 or len(whole) > most:
        lines = [text]
    else:
        lines = [visible(one) for one in json.dumps(value, ensure_ascii=False, indent=2).split("\n")]
    return [_kept_spaces(one) for one in lines]


def _kept_spaces(text: str) -> str:
    """Keep a run of spaces, which a browser shows as one, and the first ones, which markdown drops."""
    text = _MORE_SPACES.sub(_FIXED_SPACE, text)
    return _FIXED_SPACE + text[1:] if text.startswith(" ") else text


def _broken(text: str) -> list[str]:
    ends = [found.end() for found in _LINE_END.finditer(text)]
    parts = [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]
    # The closing quote alone belongs to the line before.
    return [*parts[:-2], parts[-2] + parts[-1]] if len(parts) > 1 and parts[-1] == '"' else parts


def json_to_copy(value: Any) -> str:
    """Return JSON on one line that survives being copied from a browser, where a run of spaces becomes one."""
    return _MORE_SPACES.sub(r"\\u0020", visible(json.dumps(value, ensure_ascii=False)))
