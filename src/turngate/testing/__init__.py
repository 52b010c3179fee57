"""What tests of gated agents stand on: a scripted model, a real server, time that passes on demand, crashes."""

from turngate.testing.journal import Journal
from turngate.testing.model import Answer, ScriptedModel, ScriptError, ServiceUnavailable
from turngate.testing.processes import WorkerProcess
from turngate.testing.reviewer import ScriptedReviewer
from turngate.testing.server import dev_server, pass_time
from turngate.testing.strict import check_conversation

__all__ = [
    "Answer",
    "Journal",
    "ScriptError",
    "ScriptedModel",
    "ScriptedReviewer",
    "ServiceUnavailable",
    "WorkerProcess",
    "check_conversation",
    "dev_server",
    "pass_time",
]
