"""Final answers of a given shape: what counts as one, and what the model is told."""

from __future__ import annotations

import pytest
from langchain_core.messages import SystemMessage
from langchain_core.tools import tool
from pydantic import BaseModel, Field, ValidationError, field_validator

from turngate import Agent, ConfigError, TurnResult
from turngate.outputs import Output, OutputSchema, read_output_schema
from turngate.testing import ScriptedModel


class Report(BaseModel):
    """A report."""

    title: str
    cost: int = Field(ge=0)

    @field_validator("title")
    @classmethod
    def _honest(cls, value: str) -> str:
        if value == "crash":
            raise RuntimeError("the validator crashed")
        return value


PLAIN = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def schema(given: object = Report) -> OutputSchema:
    """Return the schema as an agent reads it."""
    found = read_output_schema("here", given)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "answer",
    ['{"title": "a", "cost": 1}', ' {"cost":1,"title":"a"}\n', '```json\n{"title": "a", "cost": 1}\n```'],
)
async def test_answers_that_fit_come_in_one_form(answer: str) -> None:
    """Space, the order of keys and a code fence don't count."""
    assert await schema().read(answer) == Output('{"title":"a","cost":1}')


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("Here you are.", "it is not JSON"),
        ("", "it is not JSON"),
        ('{"title": "a"}', "cost: Field required"),
        ('{"title": "a", "cost": -1}', "cost: Input should be greater than or equal to 0"),
        ('{"title": "a", "cost": NaN}', "NaN is no number in JSON"),
        ('{"title": "crash", "cost": 1}', "RuntimeError: the validator crashed"),
        ("[" * 100_000, "it is not JSON"),
    ],
)
async def test_answers_that_do_not_fit_say_why(answer: str, problem: str) -> None:
    """Field by field, without a crash whatever the model sends."""
    found = await schema().read(answer)
    assert found.text is None
    assert problem in (found.problem or "")


async def test_plain_json_schema_does_as_well() -> None:
    """Without a pydantic model the schema itself checks."""
    assert await schema(PLAIN).read('{"n": 1}') == Output('{"n": 1}')
    assert "n" in ((await schema(PLAIN).read('{"n": "x"}')).problem or "")


@pytest.mark.parametrize("given", ["Report", Report(title="a", cost=1), {"$ref": "https://example.com/schema.json"}])
def test_what_is_no_schema_is_refused(given: object) -> None:
    """When the agent is built, with the place."""
    with pytest.raises(ConfigError, match="agent 'a': output_schema"):
        Agent("a", model=ScriptedModel([]), output_schema=given)  # type: ignore[arg-type]


def test_the_model_is_told_behind_the_system_prompt() -> None:
    """As one system message: some providers take no more."""
    agent = Agent("a", model=ScriptedModel([]), system_prompt="Be brief.", output_schema=Report)
    assert agent.prompt is not None
    assert str(agent.prompt.content).startswith("Be brief.\n\n")
    assert '"title"' in str(agent.prompt.content)
    blocks = schema().told(SystemMessage([{"type": "text", "text": "Be brief."}])).content
    assert isinstance(blocks, list)
    assert len(blocks) == 2
    assert '"title"' in str(Agent("b", model=ScriptedModel([]), output_schema=Report).prompt)


def test_a_tools_own_words_do_not_end_the_turn() -> None:
    """`return_direct` would end it with an output that has not the shape."""

    @tool(return_direct=True)
    def look() -> str:
        """Look."""
        return "seen"

    plain, shaped = (
        Agent("a", model=ScriptedModel([]), tools=[look], **more) for more in ({}, {"output_schema": PLAIN})
    )
    assert plain.tool_settings(look).return_direct
    assert not shaped.tool_settings(look).return_direct


def test_result_as_an_object() -> None:
    """The client gets back what the agent's model describes."""
    assert TurnResult(output='{"title":"a","cost":1}').output_as(Report) == Report(title="a", cost=1)
    with pytest.raises(ValidationError):
        TurnResult(output="stopped early").output_as(Report)
