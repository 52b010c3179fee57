"""Refuse to build from a checkout whose symbolic links are missing: the result would lack half of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LINKED = ("workflows", "activities")


class LinksPresent(BuildHookInterface):  # type: ignore[type-arg]
    """Runs before every build, the editable one included."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Raise where `src/turngate/workflows` or `activities` is not a folder."""
        package = Path(self.root) / "src" / "turngate"
        missing = [name for name in LINKED if not (package / name).is_dir()]
        if missing:
            raise RuntimeError(
                f"src/turngate/{missing[0]} is not a folder: this checkout has no symbolic links; "
                "check it out again with `git clone -c core.symlinks=true` (on Windows: with developer mode on)"
            )
