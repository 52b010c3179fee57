"""What ships is what works: sdist and wheel hold the right files, and a turn runs from the installed wheel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from turngate.devserver import find_binary

pytestmark = [pytest.mark.packaging, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "turngate"

TURN = """
import asyncio, json, sys
import turngate
from langchain_core.tools import tool
from turngate import Agent, DevServer, TurngateClient, build_worker
from turngate.testing import ScriptedModel

@tool
def pay(amount: int) -> str:
    "Pay."
    return f"paid {amount}"

async def main():
    call = {"id": "c", "name": "pay", "args": {"amount": 5}}
    model = ScriptedModel([{"tool_calls": [call]}, "done"])
    agent = Agent("main", model=model, tools=[pay], interrupt_on={"pay": True})
    async with DevServer(ui=False, binary=sys.argv[1]) as server:
        client = await server.client()
        async with build_worker(client, [agent]):
            turns = TurngateClient(client)
            paused = await turns.run_turn("main", "Pay.")
            [approval] = paused.approvals
            await turns.approve(approval.id)
            result = await paused.turn.result()
    print(json.dumps({"file": turngate.__file__, "output": result.output}))

if __name__ == "__main__":
    asyncio.run(main())
"""


def run(*command: str | Path, **options: object) -> str:
    """Run a program and return what it printed; what it said instead stands in the failure."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist, and the wheel from the sdist, as an index would get them."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """Return the wheel."""
    [found] = built.glob("turngate-*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of a clean environment with the wheel in it.

    The dependencies come from the running environment, by a path without its .pth files: the editable checkout that
    those name stays outside.
    """
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False, symlinks=True)
    here = folder / "bin" / "python"
    site = Path(run(here, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(sys.executable, "-m", "pip", "--python", here, "install", "--quiet", "--no-deps", "--no-index", wheel)
    return here


def sources() -> set[str]:
    """Return the files of the package as they are imported, the linked folders included."""
    found = {
        str(path.relative_to(PACKAGE.parent))
        for folder in (PACKAGE, PACKAGE / "workflows", PACKAGE / "activities")
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"turngate/workflows/agent_turn.py", "turngate/activities/call_tool.py", "turngate/py.typed"} <= found
    return found


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """Every file of the package is there, with the linked folders, and no other import name."""
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == sources()


def test_wheel_carries_licence_and_entry_point(wheel: Path) -> None:
    """The metadata names the licence and installs the command."""
    archive = zipfile.ZipFile(wheel)
    info = next(name for name in archive.namelist() if name.endswith("METADATA")).rpartition("/")[0]
    metadata = archive.read(f"{info}/METADATA").decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Python: >=3.11" in metadata
    assert "turngate = turngate.cli:main" in archive.read(f"{info}/entry_points.txt").decode()
    assert f"{info}/licenses/LICENSE" in archive.namelist()


def test_sdist_holds_what_is_needed_to_build_and_test(built: Path) -> None:
    """The links are folders there, each file once, and nothing that was lying about came along."""
    [archive] = built.glob("turngate-*.tar.gz")
    with tarfile.open(archive) as files:
        members = files.getmembers()
    assert not [member.name for member in members if member.issym() or member.islnk()]
    names = {member.name.partition("/")[2] for member in members}
    assert {f"src/{name}" for name in sources()} <= names
    assert {"pyproject.toml", "hatch_build.py", "worker.py", "README.md", "LICENSE", "constraints.txt"} <= names
    tops = {name.partition("/")[0] for name in names}
    assert not [name for name in names if "node_modules" in name]
    assert not tops & {"workflows", "activities", ".venv", "dist", ".git", ".ci"}


def test_turn_runs_from_the_installed_wheel(python: Path, tmp_path: Path) -> None:
    """A gated turn, server and worker included, with nothing of the checkout in reach."""
    (tmp_path / "turn.py").write_text(TURN)
    answer = json.loads(run(python, "turn.py", find_binary(), cwd=tmp_path, env=_clean_env()).splitlines()[-1])
    assert answer["output"] == "done"
    assert Path(answer["file"]).is_relative_to(python.parents[1])


def test_command_is_installed(python: Path, tmp_path: Path) -> None:
    """`turngate --help` lists its commands."""
    assert "inbox" in run(python.with_name("turngate"), "--help", cwd=tmp_path, env=_clean_env())


def test_checkout_without_links_says_so(tmp_path: Path) -> None:
    """Where links are text files, both the build and the import fail with one clear sentence."""
    package = tmp_path / "src" / "turngate"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text((PACKAGE / "__init__.py").read_text())
    for name in ("workflows", "activities"):
        (package / name).write_text(f"../../{name}")
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    imported = _failure(
        sys.executable, "-c", "import turngate", env={**_clean_env(), "PYTHONPATH": str(package.parent)}
    )
    assert "ImportError: turngate/workflows is a file, not a folder: this checkout has no symbolic links" in imported
    build = _failure(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path / "out", tmp_path)
    assert "src/turngate/workflows is not a folder: this checkout has no symbolic links" in build


def _failure(*command: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode != 0
    return done.stdout + done.stderr


def _clean_env() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
