r"""Recognising a critical point: which modes are learnt, and the normal form of given layers.

Layers with product $S\Sigma$ have one normal form in the bases $P_l = [X_l, N_l]$ with
$X_l = W_{l:1}(U_S^\top\Sigma)^+$ and $N_l$ an orthonormal basis of the null space of $U_S^\top W_{L:l+1}$: learnt modes
run through the units of $X_l$, and what is left, $Z_l$, is read off. These functions run on the host.
"""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from deeplinear.core import (
    HypothesisError,
    Params,
    check_finite,
    check_number,
    check_shape,
    check_x64,
    checked_layer,
    entry,
    xp,
)
from deeplinear.landscape._arguments import (
    Layers,
    Signature,
    Strengths,
    check_range,
    checked_sigma,
    checked_signature,
    host_layers,
    set_name,
    widths_of,
)
from deeplinear.landscape._critical import change_basis, criterion_terms, embed, rectangular, skeleton, spectral
from deeplinear.landscape._reduction import WEAK

CONVERGED = 1e-3
r"""Largest entry of $W_{L:1} - S\Sigma$, as a share of $\sigma_1$, for which the product counts as $S\Sigma$."""


@dataclasses.dataclass(frozen=True)
class Detection:
    r"""Which modes a product has learnt.

    Attributes:
        signature: Modes that are learnt, counted from 1; `None` where that cannot be said.
        rank: Number of modes that are learnt.
        subspace: (out, rank): orthonormal basis of the left singular vectors that are learnt, in the coordinates of the
            target. Of a group of equal singular values it may be any directions.
        residual: Largest entry of $W_{L:1} - UU^\top\Sigma$ over $\sigma_1$, $U$ this basis.
        tolerance: What the residual was compared with.
        message: What was found, in one sentence.
    """

    signature: Signature | None
    rank: int
    subspace: np.ndarray
    residual: float
    tolerance: float
    message: str

    @property
    def converged(self) -> bool:
        """Whether the product is that of a critical point, to the tolerance."""
        return self.residual <= self.tolerance


@dataclasses.dataclass(frozen=True)
class CanonicalForm:
    r"""The normal form of layers: $W_l = P_l\,(A_l + Z_l)\,P_{l-1}^{-1}$.

    Attributes:
        sigma: Singular values of the target.
        widths: $(d_0, \dots, d_L)$.
        signature: Modes that are learnt, counted from 1.
        gauge: $P_1, \dots, P_{L-1}$.
        fills: $Z_1, \dots, Z_L$; none for a single layer.
        conditions: Condition numbers of the bases.
        reconstruction: Largest entry by which the layers rebuilt from this form miss the given ones, relative to the
            largest entry.
    """

    sigma: np.ndarray
    widths: tuple[int, ...]
    signature: Signature
    gauge: Layers
    fills: Layers
    conditions: tuple[float, ...]
    reconstruction: float

    @property
    def rank(self) -> int:
        """Number of modes that are learnt."""
        return len(self.signature)

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(self.widths) - 1

    @property
    def target(self) -> np.ndarray:
        r"""$\Sigma$."""
        return rectangular(self.sigma, self.widths)

    @functools.cached_property
    def sizes(self) -> tuple[float, ...]:
        r"""Spectral norms of the $Z_l$."""
        return tuple(spectral(fill) for fill in self.fills)

    @functools.cached_property
    def unlearnt(self) -> np.ndarray:
        r"""$U_Q^\top\Sigma$: the rows of the target that are not learnt."""
        return self.target[[i for i in range(self.widths[-1]) if i + 1 not in self.signature]]

    def layers(self) -> Layers:
        """The layers rebuilt from this form."""
        return _rebuilt(self.sigma, self.widths, self.signature, self.fills, self.gauge)

    def between(self, last: int, first: int) -> np.ndarray:
        r"""$Z_{b:a}$ for layers $b$ = `last` down to $a$ = `first`; the identity if $b = a - 1$."""
        if last == first - 1:
            return np.eye(self.widths[last] - (self.rank if last else 0))
        result = self.fills[first - 1]
        for fill in self.fills[first:last]:
            result = fill @ result
        return result

    def around(self, upper: int, lower: int) -> np.ndarray:
        r"""$Z_{j-1:1}\Sigma^\top U_Q Z_{L:i+1}$ for layers $i$ = `upper` and $j$ = `lower`."""
        return self.between(lower - 1, 1) @ self.unlearnt.T @ self.between(self.depth, upper + 1)

    def move(self, layers: Iterable[np.ndarray]) -> Layers:
        """Layers, or a direction of them, from the coordinates of this form to those of the network."""
        return change_basis(tuple(layers), self.gauge)

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, as pairs of label and text."""
        return [
            ("signature", set_name(self.signature)),
            ("sizes of the blocks Z", ", ".join(f"{np.linalg.norm(fill):.3g}" for fill in self.fills) or "none"),
            ("condition of the bases P", ", ".join(f"{c:.3g}" for c in self.conditions) or "none"),
            ("rebuilt to", f"{self.reconstruction:.1e}"),
            ("criticality residual", f"{criticality_residual(self):.1e}"),
        ]

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "sigma": self.sigma.tolist(),
            "widths": list(self.widths),
            "signature": list(self.signature),
            "gauge": [basis.tolist() for basis in self.gauge],
            "fills": [fill.tolist() for fill in self.fills],
            "conditions": list(self.conditions),
            "reconstruction": self.reconstruction,
            "criticality_residual": criticality_residual(self),
        }

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label.ljust(width)}  {text}" for label, text in rows)


def _rebuilt(sigma: np.ndarray, widths: tuple[int, ...], signature: Signature, fills: Layers, gauge: Layers) -> Layers:
    layers = skeleton(sigma, widths, signature)
    if fills:
        layers = tuple(a + z for a, z in zip(layers, embed(fills, signature, widths), strict=True))
    return change_basis(layers, gauge)


def detect(product: np.ndarray, sigma: np.ndarray, tolerance: float) -> tuple[Detection, np.ndarray, Signature]:
    r"""The detection, an orthogonal matrix that turns tied modes so that learnt ones come first, and their places.

    Turning output and input alike by it leaves the target as it is.
    """
    out, inp = product.shape
    modes = len(sigma)
    scale = float(sigma[0]) or 1.0
    turn = np.eye(max(out, inp))
    learnt, ambiguous = [], []
    start = 0
    while start < modes:
        end = start + 1
        while end < modes and sigma[start] - sigma[end] <= WEAK * scale:
            end += 1
        group, size = slice(start, end), end - start
        strength = float(np.mean(sigma[group]))
        if strength > WEAK * scale:
            block = product[group, group] / strength
            values, vectors = np.linalg.eigh(0.5 * (block + block.T))
            count = int(np.sum(values > 0.5))
            if size > 1:
                turn[group, group] = vectors[:, ::-1]
            learnt += range(start + 1, start + 1 + count)
            if 0 < count < size:
                ambiguous.append((start + 1, end, count))
        start = end
    chosen = tuple(learnt)
    target = rectangular(sigma, (inp, out))
    kept = np.zeros_like(target)
    places = [i - 1 for i in chosen]
    kept[places] = target[places]
    turned = turn[:out, :out].T @ product @ turn[:inp, :inp]
    residual = float(np.max(np.abs(turned - kept))) / scale
    if residual > tolerance:
        message = (
            f"The product is not that of a critical point: {residual:.1e} of the largest singular value away from the "
            f"nearest, tolerance {tolerance:.1e}."
        )
    elif ambiguous:
        said = ", ".join(f"{count} of the equal modes {a} to {b}" for a, b, count in ambiguous)
        message = f"Learnt are {said}: only the subspace can be told."
    else:
        message = f"Learnt are the modes {set_name(chosen)}." if chosen else "No mode is learnt."
    named = None if ambiguous or residual > tolerance else chosen
    return Detection(named, len(chosen), turn[:out, places], residual, tolerance, message), turn, chosen


@entry(instead="compare the product with the critical products")
def detect_signature(
    product: ArrayLike | Sequence[Sequence[float]], sigma: Strengths, *, tolerance: float = CONVERGED
) -> Detection:
    r"""Which modes a product has learnt: the signature $S$ with $W_{L:1} = S\Sigma$.

    A mode counts as learnt where its diagonal entry exceeds half its strength; all entries are then compared. Where
    singular values coincide and some of them are learnt, the learnt directions need not be those of the target: the
    subspace is given instead.

    Args:
        product: The product, in coordinates in which the target is diagonal.
        sigma: Singular values of the target, largest first.
        tolerance: Largest deviation of an entry, as a share of $\sigma_1$.

    Returns:
        What was found; the signature is `None` where there is none, and the message says why.

    Example:
        >>> detect_signature(jnp.diag(jnp.array([0.0, 1.0])), [2.0, 1.0]).signature
        (2,)
        >>> detect_signature(jnp.full((2, 2), 0.5), [1.0, 1.0]).message
        'Learnt are 1 of the equal modes 1 to 2: only the subspace can be told.'
    """
    where = "detect_signature"
    check_number(where, "tolerance", tolerance, above=0)
    values = np.asarray(checked_sigma(where, sigma, ordered=True))
    matrix = np.asarray(checked_layer(where, "product", product), dtype=float)
    check_shape(where, "product", matrix, (None, None))
    check_finite(where, "product", matrix)
    check_shape(where, "sigma", values, (min(matrix.shape),))
    return detect(matrix, values, tolerance)[0]


@entry(instead="call it outside of the transformation")
def canonical_form(
    params: Iterable[Any], sigma: Strengths, signature: Iterable[int] | None = None, *, tolerance: float = CONVERGED
) -> CanonicalForm:
    r"""The normal form of layers with product $S\Sigma$.

    Args:
        params: Layers, in coordinates in which the target is diagonal.
        sigma: Singular values of the target, largest first.
        signature: Modes that are learnt, counted from 1; by default they are detected.
        tolerance: Largest deviation of an entry of the product from $S\Sigma$, as a share of $\sigma_1$.

    Returns:
        Bases, blocks, condition numbers, and how well the layers are rebuilt from them.

    Raises:
        HypothesisError: The product is not $S\Sigma$, or tied modes leave the signature open.

    Example:
        >>> layers = normal_form([2.0, 1.0], (2, 3, 2), (1,), fills=(None, [[4.0, 3.0]]))
        >>> [round(float(np.linalg.norm(fill)), 12) for fill in canonical_form(layers, [2.0, 1.0]).fills]
        [0.0, 5.0]
    """
    where = "canonical_form"
    check_x64(where)
    check_number(where, "tolerance", tolerance, above=0)
    layers, values = host_layers(where, params), np.asarray(checked_sigma(where, sigma, ordered=True))
    widths = widths_of(layers)
    check_shape(where, "sigma", values, (min(widths[0], widths[-1]),))
    with np.errstate(over="ignore", invalid="ignore"):
        product = multiply(layers)
    check_range(where, product)
    if signature is None:
        found = detect(product, values, tolerance)[0]
        if found.signature is None:
            advice = "Turn the tied modes to the learnt subspace first." if found.converged else "Train for longer."
            raise HypothesisError(
                "a product SΣ with one signature", found.residual, tolerance, found.message + " " + advice
            )
        chosen = found.signature
    else:
        chosen = checked_signature(where, signature, len(values), widths)
        wanted = np.zeros_like(product)
        places = [i - 1 for i in chosen]
        wanted[places, places] = values[places]
        if any(values[place] <= 0 for place in places):
            raise ValueError(f"{where}: signature must name modes of positive strength, but is {chosen} with {values}.")
        missed = float(np.max(np.abs(product - wanted))) / (float(values[0]) or 1.0)
        if missed > tolerance:
            raise HypothesisError(f"a product SΣ with S = {set_name(chosen)}", missed, tolerance)
    return form_of(layers, values, chosen)


def multiply(layers: Iterable[np.ndarray]) -> np.ndarray:
    """Product of layers."""
    first, *rest = layers
    for layer in rest:
        first = layer @ first
    return first


def form_of(layers: Layers, sigma: np.ndarray, signature: Signature) -> CanonicalForm:
    """The normal form of layers whose product is near that of the signature; what does not fit the pattern is lost."""
    widths, rank, depth = widths_of(layers), len(signature), len(layers)
    chosen = [i - 1 for i in signature]
    others = [i for i in range(widths[-1]) if i not in chosen]
    gauge = []
    prefix = layers[0][:, chosen] / sigma[chosen]
    suffixes = [np.eye(widths[-1])[chosen]]
    for layer in reversed(layers[1:]):
        suffixes.append(suffixes[-1] @ layer)
    suffixes.reverse()
    for hidden in range(1, depth):
        if hidden > 1:
            prefix = layers[hidden - 1] @ prefix
        null = np.linalg.svd(suffixes[hidden - 1], full_matrices=True)[2][rank:].T
        gauge.append(np.concatenate([prefix, null], axis=1))
    seen = change_basis_back(layers, gauge)
    fills = []
    for position, layer in enumerate(seen if depth > 1 else ()):
        columns = slice(rank if position else 0, None)
        fills.append(layer[others][:, columns] if position == depth - 1 else layer[rank:, columns])
    rebuilt = _rebuilt(sigma, widths, signature, tuple(fills), tuple(gauge))
    largest = max(float(np.max(np.abs(layer))) for layer in layers) or 1.0
    missed = max(float(np.max(np.abs(a - b))) for a, b in zip(rebuilt, layers, strict=True)) / largest
    conditions = tuple(float(np.linalg.cond(basis)) for basis in gauge)
    return CanonicalForm(sigma, widths, signature, tuple(gauge), tuple(fills), conditions, missed)


def change_basis_back(layers: Layers, gauge: list[np.ndarray]) -> Layers:
    r"""$P_l^{-1} W_l P_{l-1}$, identities at both ends."""
    result = []
    for position, layer in enumerate(layers):
        if position > 0:
            layer = layer @ gauge[position - 1]
        if position < len(layers) - 1:
            layer = np.linalg.solve(gauge[position], layer)
        result.append(layer)
    return tuple(result)


def criticality_residual(form: CanonicalForm) -> float:
    r"""How far layers with the product of a critical point are from being one: 0 if and only if they are.

    The largest of $\|Z_{L:1}\|_F$ and $\|Z_{j-1:1}\Sigma^\top U_Q Z_{L:j+1}\|_F$ over all layers $j$. It vanishes where
    two blocks $Z$ do, but also elsewhere.

    Example:
        >>> flat = normal_form([2.0, 1.0], (2, 2, 2), (1,), fills=(None, [[3.0]]))
        >>> criticality_residual(canonical_form(flat, [2.0, 1.0]))  # Z₂ U_QᵀΣ = 3 · 1
        3.0
    """
    terms = criterion_terms(form.fills, form.sigma, form.widths, form.signature)
    return max((float(np.linalg.norm(term)) for term in terms), default=0.0)


def as_params(layers: Iterable[np.ndarray]) -> Params:
    """Layers from the host as those of the rest of the library."""
    return tuple(xp.asarray(layer, dtype=float) for layer in layers)
