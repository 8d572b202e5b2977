"""Files of the same form: what is written and read quickly is what xarray writes and reads."""

import io
from typing import Any

import numpy as np
import pytest
import xarray

from deeplinear.experiments import _netcdf


def made(number: int, **more: Any) -> xarray.Dataset:
    rng = np.random.default_rng(number)
    dataset = xarray.Dataset(
        {
            "value": (("step", "entry"), rng.normal(size=(3, 2)), {"unit": "one"}),
            "holds": ((), bool(number % 2)),
            "flags": ("step", np.arange(3) > number),
            "count": ("step", np.arange(3) * number),
            "single": ("entry", np.array([number, np.nan], dtype=np.float32)),
            "nothing": ("none", np.zeros(0)),
        },
        {"step": [0.0, 0.5, 1.0]},
        {"title": "a form", "size": 3},
    )
    return dataset.assign(more)


def load(file: bytes) -> xarray.Dataset:
    return xarray.load_dataset(io.BytesIO(file), engine="h5netcdf")


@pytest.mark.parametrize("more", [{}, {"word": ("entry", ["a", "b"])}], ids=["numbers", "words"])
def test_what_is_written_is_read_by_xarray(more: dict, seed: int) -> None:
    for number in range(seed, seed + 3):
        dataset = made(number, **more)
        xarray.testing.assert_identical(load(_netcdf.to_bytes(dataset)), dataset)


def test_attributes_and_shapes_belong_to_the_form() -> None:
    first, other = made(1), made(1).assign_attrs(title="another")
    longer = made(1).isel(step=[0, 1, 2, 2])
    for dataset in (first, other, longer, first):
        xarray.testing.assert_identical(load(_netcdf.to_bytes(dataset)), dataset)


def test_members_are_put_together_as_xarray_does(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(_netcdf, "BLOCK", 3)
    members = [made(seed + k) for k in range(5)]
    files = [_netcdf.to_bytes(member) for member in members]
    read: list[bytes] = []

    def counted(file: bytes) -> xarray.Dataset:
        read.append(file)
        return load(file)

    blocks = list(_netcdf.together(((file, file) for file in files), counted))
    assert [block.sizes["member"] for block in blocks] == [3, 2] and len(read) == 2
    joined = xarray.concat(blocks, "member", data_vars="all")
    xarray.testing.assert_identical(joined, xarray.concat(members, "member", data_vars="all"))


@pytest.mark.parametrize("number", ["fill", "scale"])
def test_numbers_that_stand_for_others_are_left_to_xarray(number: str) -> None:
    """An integer that marks what is missing, or a scale: the stored numbers are not the meant ones."""
    encoding = {"fill": {"_FillValue": -1.0}, "scale": {"dtype": "int16", "scale_factor": 0.5, "_FillValue": -9}}[
        number
    ]
    files = []
    for values in ([1.0, 2.0], [1.5, np.nan] if number == "fill" else [1.5, 3.0]):
        dataset = xarray.Dataset({"value": ("entry", values)})
        buffer = dataset.to_netcdf(engine="h5netcdf", encoding={"value": encoding})
        files.append(bytes(buffer))
    blocks = list(_netcdf.together(((file, file) for file in files), load))
    expected = [load(file)["value"].to_numpy() for file in files]
    np.testing.assert_array_equal(np.concatenate([block["value"] for block in blocks]), expected)
