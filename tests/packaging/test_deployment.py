"""The files for deployment say what the code says, and hold no secrets."""

from __future__ import annotations

import io
import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from turngate import attributes

ROOT = Path(__file__).parents[2]
ONE_SHOT = {"schema", "setup"}


@pytest.fixture
def services() -> dict[str, Any]:
    """Return the services of docker-compose.yml."""
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return loaded


def test_setup_registers_exactly_our_search_attributes(services: dict[str, Any]) -> None:
    """The commands in the compose file and `turngate setup` register the same."""
    [script] = services["setup"]["command"]
    registered = {
        name: kind
        for line in script.splitlines()
        if "search-attribute create" in line
        for kind in re.findall(r"--type (\S+)", line)
        for name in re.findall(r"--name (\S+)", line)
    }
    wanted = attributes.command("default", list(attributes.TYPES))
    assert registered == dict(re.findall(r"--name (\S+) --type (\S+)", wanted))


def test_compose_file_holds_no_secrets(services: dict[str, Any]) -> None:
    """Passwords have no default: they come from .env, and without one the start fails with a sentence."""
    secrets = [
        value
        for service in services.values()
        for key, value in service.get("environment", {}).items()
        if re.search("PASSWORD|PWD|SECRET|KEY", key)
    ]
    assert len(secrets) >= 3
    assert all(value.startswith("${POSTGRES_PASSWORD:?") for value in secrets)


def test_services_are_watched(services: dict[str, Any]) -> None:
    """What keeps running has a health check (the worker's stands in its image); what runs once must succeed."""
    watched = {name for name, service in services.items() if "healthcheck" in service}
    assert watched | ONE_SHOT | {"worker"} == set(services)
    conditions = {
        name: each["condition"] for service in services.values() for name, each in service.get("depends_on", {}).items()
    }
    assert {name for name, condition in conditions.items() if condition == "service_completed_successfully"} == ONE_SHOT


def test_ports_are_for_this_machine_only(services: dict[str, Any]) -> None:
    """Neither server nor UI asks who is there."""
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_worker_outlives_its_drain(services: dict[str, Any]) -> None:
    """The container is not killed while tools get their 30 seconds."""
    assert int(services["worker"]["stop_grace_period"].removesuffix("s")) > 30


def test_image_does_not_run_as_root() -> None:
    """The last user of the image is not root."""
    users = re.findall(r"^USER (\S+)", (ROOT / "Dockerfile").read_text(), re.M)
    assert users
    assert users[-1] not in ("root", "0")


@pytest.mark.parametrize(("pollers", "code"), [(5, False), (0, True)])
def test_health_check_wants_pollers(pollers: int, code: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe in the image reads the worker's metrics: a worker that polls nothing is not well."""
    joined = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
    [probe] = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", joined, re.M)
    metrics = f'temporal_num_pollers{{poller_type="workflow_task",task_queue="turngate"}} {pollers}\n'
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: io.BytesIO(metrics.encode()))
    with pytest.raises(SystemExit) as ended:
        exec(json.loads(probe)[2], {})
    assert ended.value.code is code


def test_nothing_names_an_address_of_an_index() -> None:
    """Versions are pinned by number alone, so any index serves them."""
    lines = (ROOT / "constraints.txt").read_text().split()
    assert lines
    assert all(re.fullmatch(r"[\w.\-]+==[\w.!+\-]+", line) for line in lines)
