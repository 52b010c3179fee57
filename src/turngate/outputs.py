"""Final answers of a given shape: what the model is told, and whether its answer fits."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import SystemMessage
from pydantic import BaseModel, ValidationError

from turngate import schemas, texts, usercode
from turngate.contracts import Json
from turngate.errors import ConfigError
from turngate.toolbox import sentences

_FENCED = re.compile(r"\A```\w*\s*\n(.*)\n\s*```\Z", re.DOTALL)


@dataclass(frozen=True)
class Output:
    """A final answer that was read: its JSON, or what is wrong with it."""

    text: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class OutputSchema:
    """The shape of final answers: a JSON Schema, and the pydantic model behind it where one was given."""

    schema: Json
    model: type[BaseModel] | None = None

    def told(self, prompt: SystemMessage | None) -> SystemMessage:
        """Return the system prompt with what the model must know."""
        words = texts.output_wanted(self.schema)
        if prompt is None:
            return SystemMessage(words)
        content = f"{prompt.content}\n\n{words}" if isinstance(prompt.content, str) else [*prompt.content, words]
        return prompt.model_copy(update={"content": content})

    async def read(self, answer: str) -> Output:
        """Read a final answer. A model's own validators may do what they like, so they get a thread."""
        return await usercode.call(self._read, answer)  # type: ignore[no-any-return]

    def _read(self, answer: str) -> Output:
        text = answer.strip()
        if fenced := _FENCED.match(text):
            text = fenced[1]
        try:
            value = json.loads(text, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            return Output(problem=f"it is not JSON ({error})")
        try:
            return self._checked(value)
        except ValidationError as error:
            return Output(problem="; ".join(sentences(error)))
        except Exception as error:  # the model's own code
            return Output(problem=usercode.words_of(error))

    def _checked(self, value: Any) -> Output:
        if self.model is not None:
            return Output(self.model.model_validate_json(json.dumps(value)).model_dump_json(by_alias=True))
        problems = [sentence for _, sentence in schemas.check(self.schema, value)]
        return Output(problem="; ".join(problems[:20])) if problems else Output(json.dumps(value, ensure_ascii=False))


def read_output_schema(place: str, given: Any) -> OutputSchema | None:
    """Return the option `output_schema` in one form. Raises ConfigError."""
    if given is None:
        return None
    if isinstance(given, type) and issubclass(given, BaseModel):
        return OutputSchema(_schema_of(place, given), given)
    if not isinstance(given, Mapping):
        raise ConfigError(f"{place}: {given!r} is neither a pydantic model nor a JSON Schema")
    schema, warning = schemas.prepare(dict(given))
    if schema is None:
        raise ConfigError(f"{place}: this JSON Schema can't be used: {(warning or '').partition(': ')[2]}")
    return OutputSchema(schema)


def _schema_of(place: str, model: type[BaseModel]) -> Json:
    try:
        return model.model_json_schema()
    except Exception as error:
        raise ConfigError(f"{place}: {model.__name__} has no JSON Schema ({usercode.words_of(error)})") from None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number in JSON")
