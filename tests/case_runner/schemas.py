"""The argument models of a case's tools."""

from __future__ import annotations

import datetime
import json
from typing import Annotated, Any

from langchain_core.tools import InjectedToolArg
from pydantic import AfterValidator, BaseModel, create_model

Json = dict[str, Any]
_TYPES: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "list": list,
    "dict": dict,
    "any": Any,
    "date": datetime.date,
}
CONFIG = "config"


def build_model(
    name: str, params: Json, *, validator: Json | None = None, injected: tuple[str, ...] = ()
) -> type[BaseModel]:
    """Return the pydantic model of `params`; the runtime supplies the `injected` ones."""
    fields = {key: _field(f"{name}_{key}", spec) for key, spec in params.items()}
    if validator is not None:
        kind, default = fields[validator["arg"]]
        fields[validator["arg"]] = (Annotated[kind, AfterValidator(_checker(validator))], default)
    for key in injected:
        if key != CONFIG:
            fields[key] = (Annotated[Any, InjectedToolArg], None)
    return create_model(name, **fields)


def as_json(value: Any) -> Any:
    """Return an argument as the JSON that it came from."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, dict):
        return {key: as_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in value]
    return value


def types_of(args: Json) -> dict[str, str]:
    """Return the types that a tool's arguments have, fields of typed objects as `arg.field`."""
    found: dict[str, str] = {}
    for key, value in args.items():
        found[key] = "model" if isinstance(value, BaseModel) else type(value).__name__
        if isinstance(value, BaseModel):
            inner = {name: getattr(value, name) for name in type(value).model_fields}
            found |= {f"{key}.{name}": kind for name, kind in types_of(inner).items()}
    return found


def _field(name: str, spec: Any) -> tuple[Any, Any]:
    if isinstance(spec, dict):
        return build_model(name, spec["model"]), ...
    kind, _, default = spec.partition(" = ")
    return _TYPES[kind], json.loads(default) if default else ...


def _checker(validator: Json) -> Any:
    def check(value: Any) -> Any:
        if validator["must_contain"] not in value:
            raise ValueError(validator["error"])
        return value

    return check
