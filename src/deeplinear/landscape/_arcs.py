r"""Arcs between critical points, and chords between networks.

The product at a critical point is $S\Sigma$: it has learnt the modes of a *signature* $S$, a sorted tuple of mode
numbers from 1, and the value is $c(S) = \tfrac12\sum_{i \notin S}\sigma_i^2$. On the segment
$\Phi(\alpha) = (1-\alpha)S_1\Sigma + \alpha S_2\Sigma$ between two such products every network over $\Phi(\alpha)$ has
the loss

$$F(\alpha) = \tfrac12\Big[\sum_{i \notin S_1 \cup S_2}\sigma_i^2 + (1-\alpha)^2a + \alpha^2b\Big],\qquad
a = \sum_{S_2 \setminus S_1}\sigma_i^2,\quad b = \sum_{S_1 \setminus S_2}\sigma_i^2,$$

whichever of them an arc takes. A chord, the segment between the weights themselves, is another thing: its loss is a
polynomial of degree $2L$ and may have maxima inside, even between networks with the same product.
"""

import dataclasses
import itertools
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import (
    Array,
    Params,
    add_scaled,
    as_array,
    check_count,
    check_finite,
    check_number,
    check_result,
    check_shape,
    entry,
    formula,
    is_concrete,
    put,
    refused_derivative,
    xp,
)
from deeplinear.landscape._arguments import (
    Signature,
    checked_chain,
    checked_network,
    checked_sigma,
    checked_signature,
    set_name,
)
from deeplinear.landscape._many import losses
from deeplinear.landscape._variations import line_polynomial
from deeplinear.models import DeepLinear, Problem, checked_problem

Kind = Literal["constant", "decreasing", "increasing", "mixed"]
"""How the loss goes along an arc."""

MOST_MODES = 16
"""Subsets of more modes are not listed: at this number they are 65,536."""


class ArcMinimum(NamedTuple):
    """Where the loss on an arc is least, from 0 at its start to 1 at its end, and the loss there."""

    alpha: Float[Array, ""]
    value: Float[Array, ""]


class ArcCounts(NamedTuple):
    """Number of signatures that decreasing arcs from a critical point lead to, and increasing ones."""

    decreasing: int
    increasing: int


@dataclasses.dataclass(frozen=True)
class Arc:
    """A decreasing arc between two signatures: its end has learnt all modes of its start and more.

    Attributes:
        start: Signature with the higher loss.
        end: Signature with the lower loss.
        drop: By how much the loss falls.
    """

    start: Signature
    end: Signature
    drop: float


@dataclasses.dataclass(frozen=True)
class Submanifolds:
    """Unstable and stable submanifolds of the critical points with a signature, as arcs.

    Attributes:
        signature: Modes that are learnt.
        unstable: Decreasing arcs that begin here.
        stable: Decreasing arcs that end here.
    """

    signature: Signature
    unstable: tuple[Arc, ...]
    stable: tuple[Arc, ...]

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, as pairs of label and text."""
        rows = [("signature", set_name(self.signature))]
        rows += [("unstable", f"to {set_name(arc.end)}, falls by {arc.drop:.6g}") for arc in self.unstable]
        rows += [("stable", f"from {set_name(arc.start)}, falls by {arc.drop:.6g}") for arc in self.stable]
        return rows

    def __str__(self) -> str:
        return "\n".join(f"{label:<9}  {text}" for label, text in self.rows())


def _mask(signature: Signature, modes: int) -> np.ndarray:
    return np.isin(np.arange(1, modes + 1), signature).astype(float)


def _masks(where: str, start: Any, end: Any, modes: int) -> list[np.ndarray]:
    return [_mask(signature, modes) for signature in _checked_ends(where, start, end, modes)]


def _parts(
    sigma: Float[Array, " modes"], first: Float[Array, " modes"], last: Float[Array, " modes"]
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """Sums of squares over the modes of neither, those of the end only (a), those of the start only (b)."""
    neither, gained, lost = (1 - first) * (1 - last), last * (1 - first), first * (1 - last)
    squares = sigma**2
    return xp.sum(neither * squares), xp.sum(gained * squares), xp.sum(lost * squares)


def _checked_ends(
    where: str, start: Any, end: Any, modes: int, widths: Sequence[int] = ()
) -> tuple[Signature, Signature]:
    first, last = (
        checked_signature(f"{where}: {name}", signature, modes, widths)
        for name, signature in (("start", start), ("end", end))
    )
    return first, last


def _checked_alpha(where: str, alpha: Any) -> Float[Array, "..."]:
    place = as_array(alpha, float)
    if is_concrete(place):
        seen = np.asarray(place)
        check_finite(where, "alpha", seen)
        for bound in (np.min(seen, initial=0.0), np.max(seen, initial=0.0)):
            check_number(where, "alpha", float(bound), at_least=0, at_most=1)
    return place


@entry
def arc_loss(
    sigma: ArrayLike | Sequence[float], start: Sequence[int], end: Sequence[int], alpha: ArrayLike | Sequence[float]
) -> Float[Array, "..."]:
    r"""Loss of every network whose product lies on the segment between two critical products.

    $F(\alpha) = \tfrac12\big[\sum_{i \notin S_1 \cup S_2}\sigma_i^2 + (1-\alpha)^2a + \alpha^2b\big]$ with the squares
    summed over the modes gained, $a$, and lost, $b$.

    Args:
        sigma: Singular values of the task.
        start: Signature $S_1$: mode numbers from 1.
        end: Signature $S_2$.
        alpha: Place on the segment, from 0 to 1; of any shape.

    Returns:
        The loss at every place.

    Example:
        >>> arc_loss([10.0, 8.0, 6.0, 4.0], (1, 3), (2,), [0.0, 0.32, 1.0]).round(6)
        array([40.  , 29.76, 76.  ])
    """
    where = "arc_loss"
    values = checked_sigma(where, sigma, positive=True)
    masks = _masks(where, start, end, values.shape[0])
    return _arc_loss(values, *masks, _checked_alpha(where, alpha))


@formula
def _arc_loss(sigma: Array, first: Array, last: Array, place: Array) -> Float[Array, "..."]:
    rest, gained, lost = _parts(sigma, first, last)
    return 0.5 * (rest + (1 - place) ** 2 * gained + place**2 * lost)


def arc_kind(start: Sequence[int], end: Sequence[int]) -> Kind:
    r"""How the loss goes along the arc from one signature to another.

    `"constant"` between equal signatures; `"decreasing"`, strictly, if $S_1 \subset S_2$; `"increasing"` if
    $S_1 \supset S_2$; otherwise `"mixed"`, which is always a parabola with one minimum inside and no maximum.

    Args:
        start: Signature $S_1$: mode numbers from 1.
        end: Signature $S_2$.

    Returns:
        The kind.

    Example:
        >>> arc_kind((1,), (1, 2)), arc_kind((1, 3), (2,))
        ('decreasing', 'mixed')
    """
    first, last = (set(signature) for signature in _checked_ends("arc_kind", start, end, sys.maxsize))
    if first == last:
        return "constant"
    if first < last:
        return "decreasing"
    return "increasing" if first > last else "mixed"


@entry
def arc_minimum(sigma: ArrayLike | Sequence[float], start: Sequence[int], end: Sequence[int]) -> ArcMinimum:
    r"""Where the loss on an arc is least: $\alpha^\star = a/(a+b)$, $F = \tfrac12\sum_{i\notin S_1\cup S_2}\sigma_i^2
    + \tfrac12 ab/(a+b)$.

    At the end of a decreasing arc, at the start of an increasing one, inside a mixed one. On a constant arc the start
    is given.

    Args:
        sigma: Singular values of the task.
        start: Signature $S_1$: mode numbers from 1.
        end: Signature $S_2$.

    Returns:
        The place and the loss.

    Example:
        >>> place, value = arc_minimum([10.0, 8.0, 6.0, 4.0], (1, 3), (2,))
        >>> round(float(place), 12), round(float(value), 12)
        (0.32, 29.76)
    """
    where = "arc_minimum"
    values = checked_sigma(where, sigma, positive=True)
    return _arc_minimum(values, *_masks(where, start, end, values.shape[0]))


@formula
def _arc_minimum(sigma: Array, first: Array, last: Array) -> ArcMinimum:
    rest, gained, lost = _parts(sigma, first, last)
    total = gained + lost
    safe = xp.where(total > 0, total, 1.0)
    return ArcMinimum(gained / safe, 0.5 * (rest + gained * lost / safe))


@entry
def arc_point(
    sigma: ArrayLike | Sequence[float],
    widths: Sequence[int],
    start: Sequence[int],
    end: Sequence[int],
    alpha: ArrayLike,
) -> Params:
    r"""A network on an arc whose end points are critical points.

    Every layer is rectangular diagonal with entries $(\sigma_i\theta_i)^{1/L}$, where $\theta_i$ is 1 for modes of both
    signatures, $\alpha$ for those of the end only, $1-\alpha$ for those of the start only, and 0 for the others. Where
    a hidden layer is too narrow for that, the modes take the first hidden units in their order.

    Args:
        sigma: Singular values of the task, one for each diagonal entry of its target.
        widths: $(d_0, \dots, d_L)$, with at least one hidden layer; no narrower than the number of modes of both
            signatures together.
        start: Signature $S_1$: mode numbers from 1.
        end: Signature $S_2$.
        alpha: Place on the arc, from 0 to 1.

    Returns:
        Layers, first-acting first.

    Example:
        >>> layers = arc_point([8.0, 1.0], (3, 2, 2, 2), (), (1,), 1.0)
        >>> [layer.diagonal().tolist() for layer in layers]
        [[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]]
    """
    where = "arc_point"
    model = deep_network(where, widths)
    values = checked_sigma(where, sigma, positive=True)
    check_shape(where, "sigma", values, (min(model.product_shape),))
    first, last = _checked_ends(where, start, end, values.shape[0], model.widths)
    both = tuple(sorted({*first, *last}))
    narrowest = min(model.widths)
    if len(both) > narrowest:
        raise ValueError(
            f"{where}: start and end must name at most {narrowest} modes together, the narrowest width, but name "
            f"{len(both)}; no network has the products on this arc."
        )
    place = _checked_alpha(where, alpha)
    check_shape(where, "alpha", place, ())
    modes = np.array(both, dtype=int) - 1
    before, after = (np.isin(both, signature).astype(float) for signature in (first, last))
    units = modes if not both or both[-1] <= narrowest else np.arange(len(both))
    return _on_arc(model, values, place, before, after, modes, units)


@formula
def _on_arc(
    model: DeepLinear, sigma: Array, place: Array, before: Array, after: Array, modes: Array, units: Array
) -> Params:
    """Layers with roots at places: of the modes outside, of the units that carry them inside."""
    strengths = sigma[modes] * ((1 - place) * before + place * after)
    message = "arc_point: layers have no derivative where a mode of the arc vanishes, at its ends; take arc_loss."
    roots = refused_derivative(strengths, strengths == 0, message) ** (1.0 / model.depth)
    places = [modes, *([units] * (model.depth - 1)), modes]
    return tuple(
        put(xp.zeros(shape, sigma.dtype), (rows, columns), roots)
        for shape, columns, rows in zip(model.shapes, places[:-1], places[1:], strict=True)
    )


def deep_network(where: str, widths: Any) -> DeepLinear:
    """A network with at least one hidden layer; without one there are no saddles."""
    model = checked_network(where, widths)
    if model.depth < 2:
        raise ValueError(
            f"{where}: widths must have a hidden layer, such as (3, 3, 2), but is {model.widths}; a single layer has "
            "one critical point only, its minimum."
        )
    return model


def arc_counts(modes: int, learnt: int, *, narrowest: int | None = None) -> ArcCounts:
    r"""How many signatures decreasing and increasing arcs from a critical point lead to.

    $2^{m-k} - 1$ supersets and $2^k - 1$ subsets of a signature of $k$ of $m$ modes; with a bottleneck of width $r$ the
    supersets of at most $r$ modes count.

    Args:
        modes: $m$, the number of modes of the task.
        learnt: $k$, the number of modes of the signature.
        narrowest: $r$, the narrowest width, if it is smaller than $m$.

    Returns:
        Both numbers.

    Example:
        >>> arc_counts(4, 1)
        ArcCounts(decreasing=7, increasing=1)
    """
    where = "arc_counts"
    check_count(where, "modes", modes, at_least=1)
    if narrowest is not None:
        check_count(where, "narrowest", narrowest, at_least=1)
    most = modes if narrowest is None else min(int(narrowest), int(modes))
    check_count(where, "learnt", learnt, at_most=most)
    more = sum(math.comb(int(modes) - int(learnt), extra) for extra in range(1, most - int(learnt) + 1))
    return ArcCounts(more, 2 ** int(learnt) - 1)


@entry(instead="use arc_loss")
def submanifolds(
    sigma: ArrayLike | Sequence[float], signature: Sequence[int], *, narrowest: int | None = None
) -> Submanifolds:
    r"""Unstable and stable submanifolds of the critical points with a signature.

    Along an arc from $S$ to any $S' \supset S$ the loss falls by $\tfrac12\sum_{S'\setminus S}\sigma_i^2$: $S$ has an
    unstable submanifold along it and $S'$ a stable one. Computed on the host.

    Args:
        sigma: Singular values of the task.
        signature: Modes that are learnt, numbered from 1.
        narrowest: The narrowest width, if it is smaller than the number of modes.

    Returns:
        The arcs, by number of modes and then in the order of the modes.

    Example:
        >>> found = submanifolds([3.0, 2.0, 1.0], (2,))
        >>> [(arc.end, arc.drop) for arc in found.unstable], [(arc.start, arc.drop) for arc in found.stable]
        ([((1, 2), 4.5), ((2, 3), 0.5), ((1, 2, 3), 5.0)], [((), 2.0)])
    """
    where = "submanifolds"
    values = np.asarray(checked_sigma(where, sigma, positive=True))
    modes = len(values)
    if narrowest is not None:
        check_count(where, "narrowest", narrowest, at_least=1)
    most = modes if narrowest is None else min(int(narrowest), modes)
    own = checked_signature(where, signature, modes, (most,))
    if modes > MOST_MODES:
        raise ValueError(
            f"{where}: sigma must hold at most {MOST_MODES} modes for all signatures to be listed, but holds {modes}; "
            "arc_counts tells how many there are."
        )
    rest = [mode for mode in range(1, modes + 1) if mode not in own]
    more = [extra for size in range(1, most - len(own) + 1) for extra in itertools.combinations(rest, size)]
    less = [part for size in range(len(own)) for part in itertools.combinations(own, size)]
    return Submanifolds(
        own,
        tuple(arc_between(values, own, tuple(sorted((*own, *extra)))) for extra in more),
        tuple(arc_between(values, part, own) for part in less),
    )


def arc_between(values: np.ndarray, start: Signature, end: Signature) -> Arc:
    """The decreasing arc between two signatures, the first within the second."""
    gained = [mode - 1 for mode in end if mode not in start]
    return Arc(start, end, float(0.5 * np.sum(values[gained] ** 2)))


def _checked_chord(where: str, problem: Any, start: Any, end: Any) -> tuple[Problem, Params, Params]:
    task = checked_problem(where, "problem", problem)
    ends = []
    for name, given in (("start", start), ("end", end)):
        layers = checked_chain(where, given, name)
        task.check(layers, f"{where}: {name}")
        ends.append(layers)
    return task, ends[0], ends[1]


@entry
def chord_loss(
    problem: Problem, start: Iterable[Any], end: Iterable[Any], alpha: ArrayLike | Sequence[float]
) -> Float[Array, "..."]:
    r"""Loss on the segment $(1-\alpha)W^{(1)} + \alpha W^{(2)}$ between the weights of two networks.

    Args:
        problem: Model and loss.
        start: Layers $W^{(1)}$.
        end: Layers $W^{(2)}$.
        alpha: Place on the segment; of any shape, and beyond the two networks too.

    Returns:
        The loss at every place.

    Example:
        >>> problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance(jnp.ones((1, 1))))
        >>> chord_loss(problem, ([[1.0]], [[1.0]]), ([[-1.0]], [[-1.0]]), [0.0, 0.5, 1.0])
        array([0. , 0.5, 0. ])
    """
    task, first, last = _checked_chord("chord_loss", problem, start, end)
    places = as_array(alpha, float)
    check_finite("chord_loss", "alpha", places)

    return check_result("chord_loss", _chord(task, first, last, places.ravel()).reshape(places.shape))


@formula
def _chord(problem: Problem, first: Params, last: Params, places: Float[Array, " places"]) -> Float[Array, " places"]:
    share = places[:, None, None]
    return losses(problem, tuple((1 - share) * a + share * b for a, b in zip(first, last, strict=True)))


@entry
def chord_polynomial(problem: Problem, start: Iterable[Any], end: Iterable[Any]) -> Float[Array, " coefficients"]:
    r"""Coefficients of the loss on a chord as a polynomial of degree $2L$ in $\alpha$, lowest order first.

    Args:
        problem: A deep linear network with a loss that is quadratic in the product.
        start: Layers $W^{(1)}$, at $\alpha = 0$.
        end: Layers $W^{(2)}$, at $\alpha = 1$.

    Returns:
        The $2L + 1$ coefficients, as `numpy.polynomial` takes them.

    Example:
        >>> problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance(jnp.ones((1, 1))))
        >>> chord_polynomial(problem, ([[1.0]], [[1.0]]), ([[-1.0]], [[-1.0]])).astype(int).tolist()
        [0, 0, 8, -16, 8]
    """
    task, first, last = _checked_chord("chord_polynomial", problem, start, end)
    return check_result("chord_polynomial", line_polynomial(task, first, add_scaled(last, -1.0, first)))
