"""Two terminals for the tutorial: one in which the server and the worker run, and one for everything else."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from turngate.cli.app import run

PATIENCE = 120.0


class Terminals:
    """Runs command lines in a folder. `turngate dev` goes to the background, on ports of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._dev: subprocess.Popen[bytes] | None = None
        self._ports = ("0", "0")

    def execute(self, line: str) -> tuple[int, str]:
        """Run a command line; return its exit code and all that it said."""
        words = shlex.split(line)
        if words[:2] == ["turngate", "dev"]:
            return self._start(words[2:])
        if words[0] == "turngate":
            return _turngate(words[1:])
        program = {"python": sys.executable}.get(words[0], words[0])
        done = subprocess.run(
            [program, *words[1:]], cwd=self._folder, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def ctrl_c(self) -> None:
        """Press Ctrl-C in the terminal of `turngate dev`, and wait for its end."""
        process, self._dev = self._dev, None
        assert process is not None, "turngate dev does not run"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0, self._log.read_text("utf-8")

    def close(self) -> None:
        """End what still runs."""
        if self._dev is not None:
            self._dev.kill()
            self._dev.wait()

    @property
    def _log(self) -> Path:
        return self._folder / "dev.log"

    def _start(self, words: list[str]) -> tuple[int, str]:
        port, ui_port = self._ports
        command = [sys.executable, "-c", "from turngate.cli import main; main()", "dev", *words]
        with self._log.open("wb") as log:
            self._dev = subprocess.Popen(
                [*command, "--port", port, "--ui-port", ui_port], cwd=self._folder, stdout=log, stderr=subprocess.STDOUT
            )
        said = self._ready()
        # It comes back on the same ports, as without ours.
        self._ports = tuple(re.findall(r"127\.0\.0\.1:(\d+)", said)[:2])
        os.environ["TEMPORAL_ADDRESS"] = f"127.0.0.1:{self._ports[0]}"
        return 0, said

    def _ready(self) -> str:
        assert self._dev is not None
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            said = self._log.read_text("utf-8")
            if "A worker runs" in said:
                return said
            with contextlib.suppress(subprocess.TimeoutExpired):
                raise AssertionError(f"turngate dev ended with {self._dev.wait(0.1)}: {said}")
        raise AssertionError(f"turngate dev did not get ready: {self._log.read_text('utf-8')}")


def _turngate(words: list[str]) -> tuple[int, str]:
    """Run the command line in this process, which saves its start."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = run(words)
    return code, said.getvalue()
