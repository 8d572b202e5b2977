"""What is wrong with a request is told in sentences, with titles of fields."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import Field, ValidationError, model_validator

from deeplinear.lab._complaints import complaint
from deeplinear.lab._room import Params
from lab import toy

LINE = "/api/rooms/toy/line"


def told(client: TestClient, content: str, path: str = LINE) -> tuple[str, list[str]]:
    response = client.post(path, content=content, headers={"content-type": "application/json"})
    assert response.status_code == 422 and toy.computed == []
    error = response.json()["error"]
    assert error["kind"] == "invalid"
    return error["message"], error["fields"]


@pytest.mark.parametrize(
    ("body", "message", "field"),
    [
        ('{"size": 11}', "Size: must be at most 10, but is 11.", "size"),
        ('{"size": 0.05}', "Size: must be at least 0.1, but is 0.05.", "size"),
        ('{"size": "3"}', "Size: must be a number, but is '3'.", "size"),
        ('{"size": true}', "Size: must be a number, but is true.", "size"),
        ('{"size": null}', "Size: must be a number, but is null.", "size"),
        ('{"size": [1]}', "Size: must be a number, but is a list.", "size"),
        ('{"size": {"a": 1}}', "Size: must be a number, but is an object.", "size"),
        ('{"size": NaN}', "Size: must be a finite number, but is nan.", "size"),
        ('{"size": 1e999}', "Size: must be a finite number, but is inf.", "size"),
        ('{"count": 2.5}', "Count: must be a whole number, but is 2.5.", "count"),
        ('{"count": "3"}', "Count: must be a whole number, but is '3'.", "count"),
        ('{"count": true}', "Count: must be a whole number, but is true.", "count"),
        ('{"count": 51}', "Count: must be at most 50, but is 51.", "count"),
        ('{"up": 1}', "Up: must be true or false, but is 1.", "up"),
        ('{"up": "yes"}', "Up: must be true or false, but is 'yes'.", "up"),
        ('{"kind": "other"}', "Kind: must be 'fine', 'hypothesis' or 'value', but is 'other'.", "kind"),
        (r'{"kind": "\ud800"}', r"Kind: must be text of whole characters, but is '\ud800'.", "kind"),
        (r'{"size": "\udfffx"}', r"Size: must be a number, but is '\udfffx'.", "size"),
        (f'{{"count": 1{300 * "0"}}}', f"Count: must be at most 50, but is 1{58 * '0'}….", "count"),
        ('{"mask": 3}', "Mask: must be a list, but is 3.", "mask"),
        ('{"mask": [true]}', "Mask, row 1: must be a list, but is true.", "mask"),
        ('{"mask": []}', "Mask: must have at least 1 row, but has 0.", "mask"),
        ('{"mask": [[true],[true],[true],[true],[true]]}', "Mask: must have at most 4 rows, but has 5.", "mask"),
        ('{"mask": [[true],[]]}', "Mask: row 2 must have 1 to 4 entries, but has 0.", "mask"),
        ('{"mask": [[true,true,true,true,true]]}', "Mask: row 1 must have 1 to 4 entries, but has 5.", "mask"),
        ('{"mask": [[true, 1]]}', "Mask, row 1, column 2: must be true or false, but is 1.", "mask"),
        ('{"matrix": [[0, 1e6]]}', "Matrix, row 1, column 2: must be at most 100, but is 1000000.0.", "matrix"),
        (
            '{"sise": 1}',
            "There is no parameter 'sise'. Did you mean 'size'? Known: size, count, kind, up, mask, matrix.",
            "sise",
        ),
    ],
)
def test_fields(client: TestClient, body: str, message: str, field: str) -> None:
    assert told(client, body) == (message, [field])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "The request is empty: it must be a JSON object of parameters, {} for the defaults."),
        ('{"size": }', "The request is not JSON: Expecting value at position 9."),
        ("[1]", "The request must be a JSON object of parameters, but is a list."),
        (r'{"\ud800": 1}', r"The request names a parameter '\ud800', which is no text of whole characters."),
        (f'{{"size": 1{5000 * "0"}}}', "The request must be JSON, but cannot be read as such."),
        (1500 * "[", "The request must be JSON, but cannot be read as such."),
        ("3", "The request must be a JSON object of parameters, but is 3."),
    ],
)
def test_the_request_itself(client: TestClient, body: str, message: str) -> None:
    assert told(client, body) == (message, [])


def test_several_and_long_ones(client: TestClient) -> None:
    message, fields = told(client, '{"size": 11, "count": 0, "up": 3, "kind": 5, "mask": 1}')
    assert message == (
        "Size: must be at most 10, but is 11. Count: must be at least 1, but is 0. "
        "Kind: must be 'fine', 'hypothesis' or 'value', but is 5."
    )
    assert fields == ["size", "count", "kind", "up", "mask"]
    message, _ = told(client, f'{{"kind": "{"x" * 500}"}}')
    assert message.endswith("x….") and len(message) < 150


class _Pair(Params):
    low: float = Field(title="Lowest")
    high: float = Field(2.0, title="Highest")

    @model_validator(mode="after")
    def _ordered(self) -> "_Pair":
        if self.low > self.high:
            raise ValueError("the lowest must be below the highest.")
        return self


@pytest.mark.parametrize(
    ("values", "message"),
    [({}, "Lowest: is missing."), ({"low": 3.0}, "The lowest must be below the highest.")],
)
def test_what_is_missing_and_what_does_not_go_together(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _Pair(**values)
    (problem,) = caught.value.errors()
    assert complaint({**problem, "loc": ("body", *problem["loc"])}, _Pair) == message


@pytest.mark.parametrize(("body", "size", "count"), [({"size": 3}, 3.0, 3), ({"count": 4.0}, 1.0, 4)])
def test_whole_numbers_are_numbers_and_the_other_way_round(
    client: TestClient, body: dict[str, Any], size: float, count: int
) -> None:
    assert client.post(LINE, json=body).status_code == 200
    (values,) = toy.computed
    assert isinstance(values, toy.Numbers) and (values.size, values.count) == (size, count)
