"""The stand-in for a model: it needs no key and no network, and says that it is one.

It follows a fixed plan, but reads the results: what a reviewer decides changes what it does next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool

ARCHIVE = "orders-before-2025.csv"
ARCHIVE_QUERY = "SELECT * FROM orders WHERE ordered_on < '2025-01-01' ORDER BY id"
COUNT_QUERY = "SELECT substr(ordered_on, 1, 4) AS year, count(*) AS orders FROM orders GROUP BY year"
TOO_MUCH = "DELETE FROM orders WHERE ordered_on <= '2025-12-31'"
"""The plan's mistake, for a reviewer to find: it takes the orders of 2025 along."""
DELETE = "DELETE FROM orders WHERE ordered_on < '2025-01-01'"

Results = Mapping[str, ToolMessage]


class ScriptedRecordsModel(BaseChatModel):
    """Plays the model of the demo."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Take the tools as any chat model does; the plan knows them already."""
        return self.bind(**kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        results = {message.tool_call_id: message for message in messages if isinstance(message, ToolMessage)}
        return ChatResult(generations=[ChatGeneration(message=next_message(results))])


def next_message(results: Results) -> AIMessage:
    """Return what the model says once it has these results, by the ids of their calls."""
    if "look" not in results:
        return _call(
            "I look at the orders first.",
            ("look", "read_data", {"table": "orders"}),
            ("count", "execute_sql", {"query": COUNT_QUERY}),
        )
    if "archive" not in results:
        return _call(
            "The orders before 2025 go into a file.",
            ("archive", "write_file", {"path": ARCHIVE, "query": ARCHIVE_QUERY}),
        )
    if not _worked(results, "archive"):
        return AIMessage("There is no archive, so I deleted nothing.")
    if "delete-too-much" not in results:
        return _call("They are archived; now I delete them.", ("delete-too-much", "execute_sql", {"query": TOO_MUCH}))
    if not _worked(results, "delete-too-much") and "delete" not in results:
        return _call("Then only what was ordered before 2025.", ("delete", "execute_sql", {"query": DELETE}))
    return AIMessage(_summary(results))


def _summary(results: Results) -> str:
    if _worked(results, "delete-too-much"):
        return "The archive is written and the orders up to the end of 2025 are deleted."
    if _worked(results, "delete"):
        return "The archive is written and the orders before 2025 are deleted."
    return "The archive is written. No order was deleted."


def _worked(results: Results, call_id: str) -> bool:
    return call_id in results and results[call_id].status != "error"


def _call(text: str, *calls: tuple[str, str, dict[str, Any]]) -> AIMessage:
    return AIMessage(text, tool_calls=[{"id": call_id, "name": name, "args": args} for call_id, name, args in calls])
