"""The tools of one agent, as one activity sees them, and what a call of each may look like."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.pydantic import is_basemodel_subclass

from turngate import schemas, usercode
from turngate.contracts import Json
from turngate.interrupts import Rules


@dataclass(frozen=True)
class Prepared:
    """The schema for edits of one tool's arguments, or the reason why there is none."""

    schema: Json | None
    warning: str | None


class Toolbox:
    """Tools by name. `late` are the names of those that came from an async factory."""

    def __init__(self, tools: Mapping[str, BaseTool], rules: Rules, late: Iterable[str] = ()) -> None:
        self._tools = dict(tools)
        self._rules = rules
        self.late = frozenset(late)
        self._prepared: dict[str, Prepared] = {}

    def __len__(self) -> int:
        return len(self._tools)

    def get(self, name: str) -> BaseTool | None:
        """Return a tool, or None."""
        return self._tools.get(name)

    @property
    def names(self) -> list[str]:
        """The names of all tools, in the order in which the model gets them."""
        return list(self._tools)

    @property
    def tools(self) -> list[BaseTool]:
        """All tools, in the order in which the model gets them."""
        return list(self._tools.values())

    def with_late(self, tools: Mapping[str, BaseTool]) -> Toolbox:
        """Return a toolbox with late tools added. A late tool can't take the name of one that was there before."""
        added = {name: tool for name, tool in tools.items() if name not in self._tools}
        box = Toolbox({**self._tools, **added}, self._rules, added)
        box._prepared = self._prepared.copy()
        return box

    def schema(self, name: str) -> Prepared:
        """Return the schema that edits of a tool's arguments are checked against."""
        if name not in self._prepared:
            own = self._rules.config(name).args_schema
            self._prepared[name] = prepared(own if own is not None else call_schema(self._tools[name]))
        return self._prepared[name]

    def problems(self, name: str, args: Json) -> list[str]:
        """Return what keeps a tool from reading these arguments, in its own lenient way; [] where nothing does."""
        schema = call_schema(self._tools[name])
        if isinstance(schema, type):
            return _model_problems(schema, args)
        ready = prepared(schema).schema
        return [] if ready is None else [sentence for _, sentence in schemas.check(ready, args)]

    def arguments(self, name: str) -> list[str] | None:
        """Return the arguments that a tool declares, or None where it does not say."""
        schema = call_schema(self._tools[name])
        properties = (_model_schema(schema) if isinstance(schema, type) else schema).get("properties")
        return list(properties) if isinstance(properties, dict) and properties else None


_BY_NAME = ("properties", "$defs", "definitions", "patternProperties")
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_DATA = ("default", "const", "enum", "examples", "example")


def call_schema(tool: BaseTool) -> Any:
    """Return the pydantic model or the JSON Schema of what the model may send: without injected arguments."""
    return tool.args_schema if isinstance(tool.args_schema, dict) else tool.tool_call_schema


def from_runtime(tool: BaseTool) -> frozenset[str]:
    """Return the arguments that only the runtime may supply (`InjectedToolArg`): models are not shown them."""
    shown = tool.tool_call_schema
    if not (isinstance(tool.args_schema, type) and isinstance(shown, type)):
        return frozenset()
    return frozenset(_fields(tool.args_schema)) - frozenset(_fields(shown))


def _fields(model: Any) -> Iterable[str]:
    return list(model.model_fields if hasattr(model, "model_fields") else model.__fields__)


def prepared(schema: Any) -> Prepared:
    """Make a schema ready for the workflow's check. A typed tool takes declared arguments only."""
    if isinstance(schema, type) and is_basemodel_subclass(schema):
        try:
            schema = _closed(_model_schema(schema))
            if "$ref" not in schema:  # a model that holds itself is referred to, and closed where it is defined
                schema = {"additionalProperties": False, **schema}
        except Exception as error:  # a model that holds a type without a JSON form
            return Prepared(None, f"the arguments have no JSON Schema ({usercode.words_of(error)})")
    return Prepared(*schemas.prepare(schema))


def _closed(node: Any) -> Any:
    """Return a model's schema with every object closed: a misspelt field of an edit must not be lost in silence."""
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    closed: Json = {}
    for key, value in node.items():
        if key == "pattern" and isinstance(value, str) and _LOOK_AROUND.search(value):
            continue  # none takes linear time; pydantic (2.12) writes one for Decimal, and reads the value all the same
        if key in _BY_NAME and isinstance(value, dict):
            closed[key] = {name: _closed(part) for name, part in value.items()}
        else:
            closed[key] = value if key in _DATA else _closed(value)
    if node.get("type") == "object" and isinstance(node.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return _with_local_times(closed) if node.get("format") in schemas.LOCAL else closed


def _with_local_times(node: Json) -> Json:
    """Allow a moment without a time zone, too: models send such, pydantic reads them, and some fields want no other."""
    kind = node["format"]
    if node.get("type") != "string" or "anyOf" in node:
        return node
    either = [{"format": kind}, {"format": schemas.LOCAL[kind]}]
    return {**{key: value for key, value in node.items() if key != "format"}, "anyOf": either}


def _model_schema(model: Any) -> Json:
    schema: Json = model.model_json_schema() if hasattr(model, "model_json_schema") else model.schema()
    return schema


def _model_problems(model: Any, args: Json) -> list[str]:
    try:
        (model.model_validate if hasattr(model, "model_validate") else model.parse_obj)(args)
    except Exception as error:  # a field's own validator may raise anything
        return sentences(error)
    return []


def sentences(error: Exception) -> list[str]:
    """Return a validation error of pydantic (1 or 2) as one sentence a field, at most 20, without the values."""
    if not hasattr(error, "errors"):
        return [usercode.words_of(error)]
    found = [f"{'.'.join(str(part) for part in one['loc']) or 'the arguments'}: {one['msg']}" for one in error.errors()]
    return found[:20]
