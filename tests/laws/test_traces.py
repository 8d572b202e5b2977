"""Laws of every public function: traced values and all kinds of arrays give the right answer or a named refusal."""

import functools
import importlib
import inspect
import re
import typing
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import HypothesisError, NumericalError, TracedError
from traces import Outside, Row, Traced

PACKAGES = (
    "core", "models", "probes", "recurrent", "geometry", "landscape", "nonlinear", "exact", "dynamics", "following"
)  # fmt: skip
TABLES: dict[str, dict[str, Row]] = {name: importlib.import_module(f"traces.{name}").TABLE for name in PACKAGES}
PAGE = Path(__file__).parents[2] / "docs" / "transformations.md"
REGENERATE = "JAX_ENABLE_X64=1 PYTHONPATH=tests:src .venv/bin/python -m laws.test_traces"

ROUNDING = 1e-9  # relative; another order of summation, through an ill-conditioned decomposition
DIFFERENCES = 1e-5  # relative; what is left of the differences of the fourth order, at the steps of the rows

FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Each program runs once on a few numbers: most of its time would be that of the optimiser."""

ROWS = [
    pytest.param(f"{package}.{name}", row, id=f"{package}.{name}")
    for package, table in TABLES.items()
    for name, row in table.items()
    if isinstance(row, Traced)
]
rows = pytest.mark.parametrize(("name", "row"), ROWS)
NAMED = re.compile(r"^[\w.]+( \([^)]*\))?(:| needs )")


def offered(package: str) -> dict[str, Any]:
    """Public functions of a package, and classes that a user makes from arrays."""
    module = importlib.import_module(f"deeplinear.{package}")
    found = {}
    for name in module.__all__:
        value = getattr(module, name)
        made = inspect.isclass(value) and issubclass(value, eqx.Module) and not inspect.isabstract(value)
        plain = callable(value) and not inspect.isclass(value) and typing.get_origin(value) is None
        if (made or plain) and not name.startswith("_"):
            found[name] = value
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_function_stands_in_the_table(package):
    functions, table = offered(package), TABLES[package]
    assert set(functions) - set(table) == set(), f"add rows to tests/traces/{package}.py"
    methods = {name.split(".")[0] for name in table if "." in name}
    public = set(importlib.import_module(f"deeplinear.{package}").__all__)
    assert {name for name in table if "." not in name} | methods <= public


def named(error: Exception) -> bool:
    """Whether an error is one of ours."""
    ours = isinstance(error, HypothesisError | NumericalError | TracedError)
    plain = type(error) in (TypeError, ValueError, OverflowError, RuntimeError) and NAMED.match(str(error))
    return ours or bool(plain)


def split(tree: Any) -> tuple[list[Any], list[Any]]:
    """Leaves that are arrays of floats, and the other numbers."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array | np.ndarray | np.generic | float)]
    floats = [jnp.asarray(leaf) for leaf in leaves if jnp.issubdtype(jnp.result_type(leaf), jnp.floating)]
    return floats, [leaf for leaf in leaves if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating)]


def outcome(call: Callable[..., Any], arguments: Any) -> Any:
    """Numbers that come out, or the refusal."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = call(*arguments)
        return [np.asarray(leaf) for part in split(result) for leaf in part]
    except Exception as error:
        return error


def agree(found: Any, wanted: Any, tolerance: float) -> None:
    if isinstance(wanted, Exception):
        assert type(found) is type(wanted), found
        assert named(found), found
        return
    assert not isinstance(found, Exception), repr(found)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        size = np.max(np.abs(other), initial=0.0, where=np.isfinite(other)) if other.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * size)


def program(row: Traced) -> Callable[..., Any]:
    """Values and, where there is one, the gradient of their product with given numbers."""

    def run(free: Any, cotangents: Any) -> Any:
        if row.grad not in ("yes", "forward"):
            return split(row.call(*row.through(*free))), ()

        def floats(*moving: Any) -> Any:
            return split(row.call(*row.through(*moving)))

        if row.grad == "forward":  # the derivative along the free arrays themselves
            value, slopes, rest = jax.jvp(floats, free, free, has_aux=True)
            return (value, rest), sum(jnp.sum(s * c) for s, c in zip(slopes, cotangents, strict=True))
        value, back, rest = jax.vjp(floats, *free, has_aux=True)
        return (value, rest), back(list(cotangents))

    return jax.jit(jax.vmap(run), compiler_options=FAST)


def differences(row: Traced, free: Any, direction: Any, cotangents: list[Any]) -> float:
    """Slope along a direction by central differences of the fourth order."""

    call = jax.jit(row.call) if row.grad == "forward" else row.call  # an integration is compiled at every call

    def at(step: float) -> float:
        moved = jax.tree.map(lambda x, v: x + step * v, free, direction)
        floats, _ = split(call(*row.through(*moved)))
        return sum(float(np.sum(np.asarray(f) * c)) for f, c in zip(floats, cotangents, strict=True))

    h = row.step
    return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)


@rows
def test_transformations_give_the_right_answer_or_are_refused(name, row, seed):
    rng = np.random.default_rng(seed)
    members = [jax.device_put(row.free(rng)) for _ in range(2)]
    if not row.traced:
        for transformation in (jax.jit, jax.grad):
            with pytest.raises(TracedError, match=rf"^{re.escape(name)} needs concrete numbers.*; .+\."):
                transformation(lambda *free: split(row.call(*row.through(*free)))[0][0].sum())(*members[0])
        return
    values = [split(row.call(*row.through(*member))) for member in members]
    random = functools.partial(jax.tree.map, lambda leaf: rng.normal(size=np.shape(leaf)))
    cotangents = [random(floats) for floats, _ in values]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *members)
    (floats, rest), gradient = program(row)(stacked, jax.tree.map(lambda *leaves: np.stack(leaves), *cotangents))
    if row.grad in ("refused", "forward"):
        with pytest.raises(TracedError, match=rf"^{re.escape(name)} needs concrete numbers.*traced by grad; .+\."):
            jax.grad(lambda *free: split(row.call(*row.through(*free)))[0][0].sum())(*members[0])
    for member, value in enumerate(values):
        own = jax.tree.map(lambda leaf, member=member: np.asarray(leaf)[member], (floats, rest))
        agree([*own[0], *own[1]], [np.asarray(leaf) for part in value for leaf in part], ROUNDING)
    if row.grad == "none":
        assert not values[0][0], "give the derivative of the floats"
    if row.grad == "forward":
        wanted = differences(row, members[0], members[0], cotangents[0])
        assert abs(np.asarray(gradient)[0] - wanted) <= DIFFERENCES * abs(wanted)
        assert wanted != 0
    if row.grad == "yes":
        direction = random(members[0])
        slope = sum(
            float(np.sum(np.asarray(g)[0] * v))
            for g, v in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
        )
        wanted = differences(row, members[0], direction, cotangents[0])
        sizes = [float(np.sum(np.abs(np.asarray(g)[0] * v))) for g, v in
                 zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)]  # fmt: skip
        assert abs(slope - wanted) <= DIFFERENCES * (sum(sizes) + abs(wanted)), (slope, wanted)
        assert any(sizes), "the derivative vanishes"


def strided(array: np.ndarray) -> np.ndarray:
    """The same numbers, read-only and not next to each other."""
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1])) if array.ndim else array
    view = wide[..., ::2] if array.ndim else array
    if array.ndim:
        view[...] = array
        view.setflags(write=False)
    return view


KINDS: dict[str, Callable[[np.ndarray], Any]] = {
    "big-endian": lambda array: array.astype(">f8"),
    "strided": strided,
    "fortran": lambda array: np.array(array, order="F"),
    "list": lambda array: array.tolist(),
}


def of_kind(kind: Callable[[np.ndarray], Any], arguments: Any) -> Any:
    return jax.tree.map(kind, arguments)


@rows
def test_every_kind_of_array_gives_the_right_answer_or_is_refused(name, row, seed):
    if row.kinds:
        return
    rng = np.random.default_rng(seed)
    free = row.free(rng)
    arguments = jax.tree.map(np.asarray, row.through(*free))
    wanted = outcome(row.call, jax.device_put(arguments))
    assert not isinstance(wanted, Exception), repr(wanted)
    for kind in KINDS.values():
        agree(outcome(row.call, of_kind(kind, arguments)), wanted, ROUNDING)
    whole = jax.tree.map(lambda leaf: np.round(2 * leaf), arguments)
    agree(
        outcome(row.call, of_kind(lambda leaf: leaf.astype(int), whole)), outcome(row.call, jax.device_put(whole)), 1e-9
    )
    single = outcome(row.call, of_kind(lambda leaf: leaf.astype("f4"), arguments))
    rounded = outcome(row.call, jax.device_put(of_kind(lambda leaf: leaf.astype("f4").astype(float), arguments)))
    agree(single, rounded, 1e-4)
    for refused in (lambda leaf: leaf + 1j, lambda leaf: leaf.astype(str), lambda leaf: leaf.astype(object)):
        found = outcome(row.call, of_kind(refused, arguments))
        assert isinstance(found, TypeError | ValueError), found
        assert named(found), found
    if any(leaf.ndim > 1 for leaf in jax.tree.leaves(arguments)):
        found = outcome(row.call, of_kind(lambda leaf: leaf[:0] if leaf.ndim else leaf, arguments))
        assert isinstance(found, TypeError | ValueError), found
        assert named(found), found


@rows
@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_extreme_scales_give_no_nan(name, row, scale, seed):
    if row.scales:
        return
    arguments = jax.tree.map(np.asarray, row.through(*row.free(np.random.default_rng(seed))))
    found = outcome(row.call, jax.tree.map(lambda leaf: scale * leaf, arguments))
    if isinstance(found, Exception):
        assert named(found), repr(found)
    else:
        assert not any(np.isnan(leaf).any() for leaf in found if leaf.dtype.kind == "f"), found


def instead(row: Traced) -> str:
    """What a refusal says to use instead."""
    free = jax.device_put(row.free(np.random.default_rng(0)))
    for transformation in (jax.make_jaxpr, jax.grad):
        try:
            transformation(lambda *moving: split(row.call(*row.through(*moving)))[0][0].sum())(*free)
        except TracedError as error:
            return error.instead
    raise AssertionError("not refused")


def lines() -> Iterator[str]:
    """The page of the book that shows the tables."""
    yield from HEAD.splitlines()
    for package, table in TABLES.items():
        yield from ("", f"## {package}", "", "| function | jit | vmap | grad |", "| --- | --- | --- | --- |")
        for name, row in sorted(table.items()):
            if isinstance(row, Traced):
                can = "yes" if row.traced else "refused"
                grad = {"none": "no derivative", "forward": "forward mode"}.get(row.grad, row.grad)
                grad += f": {instead(row)}" if row.grad == "refused" else ""
                yield f"| `{name}` | {can} | {can} | {grad} |"
        rest: dict[str, list[str]] = {}
        for name, row in sorted(table.items()):
            if isinstance(row, Outside):
                rest.setdefault(row.why, []).append(f"`{name}`")
        if rest:
            yield from ("", "No arrays:", "")
            yield from (f"- {why}: {', '.join(names)}" for why, names in sorted(rest.items()))


HEAD = """# Transformations

Which public functions can be called inside `jax.jit`, `jax.vmap` and `jax.grad`. The tests compare each *yes* with
single calls, and each derivative with finite differences. All other functions raise a `TracedError`, which says what to
use instead.

- *No derivative* marks functions whose results are integers or truth values.
- *Forward mode* marks functions with `jax.jvp` and `jax.jacfwd` but without `jax.grad`.
- Derivatives are `nan` where none exists: of singular vectors at equal singular values, and of roots of singular values
  that vanish. Norms have derivative 0 at zero. Where a function can tell that it has no derivative it refuses it by
  name, also inside a compiled program; at the ends of a range (times 0 and infinity, m = 1) derivatives are one-sided.
- Outside of transformations, numbers whose squares overflow or vanish (above about 1e150, below about 1e-150) are
  refused by name. Inside `jax.jit` sizes cannot be seen: there such numbers may give `nan` or infinity. Take units in
  which numbers are near one, or call the function outside once.

Every function takes lists, arrays of NumPy of any real type and byte order, and arrays of JAX, and so do the modules
that are made from arrays, such as `Correlations` and `GRU`; the linear algebra of `core` takes arrays of JAX. Complex
numbers, objects, texts and empty matrices are refused by name."""


def test_the_page_shows_the_tables():
    assert PAGE.read_text(encoding="utf-8").splitlines() == list(lines()), f"write it anew with\n    {REGENERATE}"


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    PAGE.write_text("\n".join(lines()) + "\n", encoding="utf-8")
