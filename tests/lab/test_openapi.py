"""The description of the server fits the server: random requests after it get answers that it foresees."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

from deeplinear.lab import Settings, create_app
from deeplinear.lab.rooms import ROOMS
from lab import toy

toy.gate.set()
app = create_app(Settings(hosts=("testserver",)), (toy.ROOM,))
schema = schemathesis.openapi.from_asgi("/api/openapi.json", app)


@schema.parametrize()
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_random_requests(case: schemathesis.Case) -> None:
    case.call_and_validate()


def test_every_view_is_described() -> None:
    described = create_app(Settings()).openapi()
    for room in ROOMS:
        for view in room.views:
            path = f"/api/rooms/{room.name}/{view.name}" + ("/runs" if view.kind == "run" else "")
            operation = described["paths"][path]["post"]
            assert operation["tags"] == [room.title]
            assert set(operation["responses"]) >= {"403", "409", "413", "422", "500", "503"}


@pytest.mark.parametrize("path", ["/api/rooms", "/api/status"])
def test_models_are_typed(path: str) -> None:
    described = create_app(Settings()).openapi()
    content = described["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]
    assert "$ref" in str(content["schema"])
