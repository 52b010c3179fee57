"""One execution of a tool's body: what it does, and what it writes down of that."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.tools import ToolException
from pydantic import BaseModel

from tests.case_runner.schemas import as_json, types_of
from tests.case_runner.templates import expand, fill
from turngate import current_call, interrupt
from turngate.testing import Journal

Json = dict[str, Any]
_FROM_CALL = ("key", "attempt", "decision", "reviewer", "thread_id", "context", "cancelled")
_LOOK = 0.02


@dataclass(frozen=True)
class Log:
    """Where tools write, and the file whose existence ends what hangs."""

    journal: Journal
    release: Path


class Execution:
    """One execution: it reports, asks, hangs, waits, and raises or has a `result`."""

    def __init__(self, name: str, spec: Json, model: type[BaseModel] | None, log: Log, args: Json) -> None:
        self.name, self.spec, self.log = name, spec, log
        self.args = _with_defaults(args, model, spec.get("injected", ()))
        self.id = uuid.uuid4().hex
        self.call = current_call()
        self.answers: list[Any] = []
        self.result: Any = None

    def work(self) -> Iterator[float]:
        """Do it; yields the seconds to wait in between."""
        self._start()
        yield from self._hang()
        self._ask()
        yield _seconds(self.spec.get("delay", "0s")) + float(self.args.get(self.spec.get("delay_arg", ""), 0))
        self._raise()
        self.result = self._make_result()

    def note(self, **more: Any) -> None:
        """Write down, once more, what the tool reports."""
        wanted = self.spec.get("reports", ())
        found = {key: getattr(self.call, key) for key in _FROM_CALL if key in wanted}
        found |= {"answers": self.answers, "types": types_of(self.args), **more}
        report = {key: found[key] for key in wanted}
        self.log.journal.write("report", tool=self.name, execution=self.id, report=report)

    def end(self) -> None:
        """Write down that the body is left, however."""
        self.log.journal.write("ended", tool=self.name, execution=self.id, at=time.time())

    def _start(self) -> None:
        journal = self.log.journal
        with journal.lock:
            self.hangs = journal.count("started", tool=self.name) < self.spec.get("hangs", 0)
            journal.write(
                "started",
                tool=self.name,
                execution=self.id,
                args={key: as_json(value) for key, value in self.args.items()},
                key=self.call.key,
                turn=self.call.turn_id,
                hangs=self.hangs,
                process=os.getpid(),
                at=time.time(),
            )
        self.note()

    def _hang(self) -> Iterator[float]:
        while self.hangs and not self.log.release.exists():
            if self.call.cancelled:
                self.note(cancelled=True)
                raise ToolException("the tool was called off")
            yield _LOOK

    def _ask(self) -> None:
        for question in self.spec.get("asks", ()):
            self.answers.append(interrupt(fill(question, self.args)))
            self.note()

    def _raise(self) -> None:
        raises = self.spec.get("raises")
        if raises is None:
            return
        journal = self.log.journal
        with journal.lock:
            count = journal.count("raised", tool=self.name)
            if raises["times"] != "always" and count >= raises["times"]:
                return
            journal.write("raised", tool=self.name, execution=self.id)
        raise RuntimeError(raises["message"])

    def _make_result(self) -> Any:
        values = {**self.args, **{f"answer{n}": answer for n, answer in enumerate(self.answers, 1)}}
        content = _result(self.spec.get("returns"), values, self.answers)
        if "artifact" in self.spec:
            return content, _result(self.spec["artifact"], values, self.answers)
        return content


def _result(template: Any, values: Json, answers: list[Any]) -> Any:
    """Return what a tool gives back: things that JSON can't hold among it."""
    if isinstance(template, list):
        return [_result(entry, values, answers) for entry in template]
    if not isinstance(template, dict):
        return fill(template, values)
    word, inner = next(iter(template.items()), ("", None))
    if word == "$blocks":
        return _result(inner, values, answers)
    if word == "$answer":
        return answers[inner - 1]
    if word in _UNUSUAL:
        return _UNUSUAL[word](inner)
    if word.startswith("$"):
        return expand(template)
    return {key: _result(entry, values, answers) for key, entry in template.items()}


_UNUSUAL: dict[str, Callable[[Any], Any]] = {
    "$hex": bytes.fromhex,
    "$set": set,
    "$object": lambda name: type(name.title(), (), {})(),
    "$generator": lambda entries: (entry for entry in entries),
}


def _with_defaults(args: Json, model: type[BaseModel] | None, injected: Any) -> Json:
    """Return the arguments as the tool's code sees them, without those that the runtime supplies."""
    found = {key: value for key, value in args.items() if key not in injected}
    if model is None:
        return found
    return {
        key: found.get(key, field.get_default(call_default_factory=True, validated_data=found))
        for key, field in model.model_fields.items()
        if key not in injected and (key in found or not field.is_required())
    }


def _seconds(text: str) -> float:
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[text[-1]]
