"""An MCP server of files over stdio. Once the file `read-only` lies in its folder, it has no `delete` any more."""

from __future__ import annotations

import sys
from pathlib import Path

from mcp.server.fastmcp import FastMCP
from mcp.types import ToolAnnotations

folder = Path(sys.argv[1])
server = FastMCP("files", log_level="ERROR")


@server.tool()
def read(path: str) -> str:
    """Read a file."""
    return (folder / path).read_text()


def delete(path: str) -> str:
    """Delete a file."""
    (folder / path).unlink()
    return f"deleted {path}"


if not (folder / "read-only").exists():
    server.add_tool(delete, annotations=ToolAnnotations(destructiveHint=True))

if __name__ == "__main__":
    server.run()
