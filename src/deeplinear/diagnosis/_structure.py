r"""What the weights tell alone: balance, ranks, strengths, and what the product does not see of them.

Nothing here changes under rotations of input and output, so a wide first or last layer is replaced by the small factor
of its QR decomposition.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from deeplinear.core import HypothesisError, Params, spectrum_effective_rank, spectrum_stable_rank, xp
from deeplinear.diagnosis._finding import STANDING, Finding, standing_of
from deeplinear.landscape import balance_report, balanced_representative, canonical_form, minimal_norm
from deeplinear.models import lambda_estimate

BALANCE_TOLERANCE = 1e-8
r"""Largest $\|C_l - \lambda I\|_F/(\|W_l\|_F^2 + \|W_{l+1}\|_F^2)$ of layers that count as balanced, as in `exact`."""

RANK_TOLERANCE = 1e-10
"""Singular values below this share of the largest count as zero in ranks."""

MARGIN = 10.0
"""How much larger than the imbalance the squared strengths of layers must be for their signs to be kept."""

SWEEPS = 30
"""How often every hidden basis is turned towards the given layers, one after another."""

Layers = tuple[np.ndarray, ...]


def as_params(layers: Sequence[np.ndarray]) -> Params:
    """Layers of NumPy as those of the rest of the library."""
    return tuple(xp.asarray(layer, dtype=float) for layer in layers)


def multiply(layers: Sequence[np.ndarray]) -> np.ndarray:
    """Product of layers."""
    product = layers[0]
    for layer in layers[1:]:
        product = layer @ product
    return product


def compressed(layers: Sequence[np.ndarray]) -> Layers:
    """Layers with square ends where these were wider than the hidden layer next to them."""
    small = list(layers)
    if len(small) > 1 and small[0].shape[1] > small[0].shape[0]:
        small[0] = np.linalg.qr(small[0].T)[1].T
    if len(small) > 1 and small[-1].shape[0] > small[-1].shape[1]:
        small[-1] = np.linalg.qr(small[-1])[1]
    return tuple(small)


def pair_sizes(layers: Sequence[np.ndarray]) -> np.ndarray:
    r"""$\|W_l\|_F^2 + \|W_{l+1}\|_F^2$ of neighbouring layers; 1 where both vanish."""
    sizes = np.array([np.sum(a**2) + np.sum(b**2) for a, b in itertools.pairwise(layers)])
    return np.where(sizes > 0, sizes, 1.0)


def imbalance(layers: Sequence[np.ndarray]) -> float:
    """Largest relative imbalance of neighbouring layers; 0 for a single one."""
    if len(layers) < 2:
        return 0.0
    norms = np.array([interface.norm for interface in balance_report(as_params(layers)).interfaces])
    return float(np.max(norms / pair_sizes(layers)))


def deltas(layers: Sequence[np.ndarray]) -> float:
    """Largest imbalance of neighbouring layers, not relative; 0 for a single one."""
    laws = [above.T @ above - below @ below.T for below, above in itertools.pairwise(layers)]
    return max((float(np.linalg.norm(law)) for law in laws), default=0.0)


def too_near(layers: Sequence[np.ndarray], smallest: float) -> str:
    """Why a singular value of the product is too small for balance to protect it; empty where it is not.

    Layers with an imbalance δ have squared singular values that differ by about δ, so only a mode whose strength in
    each layer, the 2/L-th power of that in the product, is well above δ is bound to stay.
    """
    strength, delta = smallest ** (2 / len(layers)), deltas(layers)
    if strength > MARGIN * delta:
        return ""
    return (
        f"The imbalance {delta:.2g} is not small against {strength:.2g}, the squared strength of the weakest mode in a "
        "layer: it may change its sign."
    )


def structure_findings(layers: Layers, tolerance: float = BALANCE_TOLERANCE) -> list[Finding]:
    """All there is to say about the weights of a network."""
    widths = (layers[0].shape[1], *(layer.shape[0] for layer in layers))
    count = sum(layer.size for layer in layers)
    small = compressed(layers)
    product = multiply(small)
    values = np.linalg.svd(product, compute_uv=False)
    found = [
        Finding("network", "widths, input first", value="-".join(map(str, widths))),
        Finding("network", "number of weights", value=f"{count:,}"),
        Finding("network", "Frobenius norm of each layer", value=tuple(float(np.linalg.norm(w)) for w in layers)),
    ]
    if len(layers) > 1:
        found += _balance(small, product, values, tolerance)
    return found + _spectrum(widths, small, values) + _form(small, product, values)


# ---- Balance ---------------------------------------------------------------------------------------------------------


def _balance(layers: Layers, product: np.ndarray, values: np.ndarray, tolerance: float) -> list[Finding]:
    report, estimate = balance_report(as_params(layers)), lambda_estimate(as_params(layers))
    sizes = pair_sizes(layers)
    plain = float(np.max(np.array([interface.norm for interface in report.interfaces]) / sizes))
    spread = float(np.max(np.asarray(estimate.frobenius) / sizes))
    lam = tuple(float(x) for x in np.asarray(estimate.lam))
    balanced, multiple = standing_of(plain, tolerance), standing_of(spread, tolerance)
    found = [
        Finding(
            "balance",
            "neighbouring layers are balanced, δ = largest ‖W'ᵀW' − WWᵀ‖",
            balanced,
            report.delta,
            plain,
            tolerance,
            "" if balanced is STANDING.holds else "Gradient flow keeps the imbalance as it is.",
            "completion/balancedness",
        ),
        Finding(
            "balance",
            "neighbouring layers are λ-balanced, W'ᵀW' − WWᵀ = λI",
            multiple,
            lam,
            spread,
            tolerance,
            "" if multiple is STANDING.holds else "The λ are the best multiples of the identity.",
            "models.lambda_estimate",
        ),
        Finding(
            "balance",
            "distance from balanced layers: at least, at most",
            value=(_least_distance(layers, [i.norm for i in report.interfaces]), _distance(layers)),
            reason="The second is that of balanced layers with the same product, turned towards these.",
            source="landscape.balanced_representative",
        ),
    ]
    least = float(minimal_norm(product, len(layers)))
    if least > 0:
        excess = sum(float(np.sum(w**2)) for w in layers) / least - 1
        found.append(
            Finding(
                "balance",
                "squared norm of the layers above the least for their product",
                value=max(excess, 0.0),
                source="landscape.minimal_norm",
            )
        )
    tilts = tuple(float(interface.misalignment[0]) for interface in report.interfaces)
    bounds = tuple(float(interface.misalignment_bounds[0]) for interface in report.interfaces)
    found.append(
        Finding(
            "balance",
            "leading directions of neighbours differ by 1 − cos²",
            value=tilts,
            reason=f"The imbalance alone allows {', '.join(f'{b:.3g}' for b in bounds)}.",
            source="landscape.balance_report",
        )
    )
    if balanced is STANDING.holds and values[0] > 0:
        found.append(_roots(layers, values, tolerance))
    return found


def _roots(layers: Layers, values: np.ndarray, tolerance: float) -> Finding:
    """Balanced layers share their singular values, the roots of those of the product."""
    rank = min(min(layer.shape) for layer in layers)
    roots = values[:rank] ** (1 / len(layers))
    gap = max(float(np.max(np.abs(np.linalg.svd(w, compute_uv=False)[:rank] - roots))) for w in layers)
    # A root of a singular value that is rounding is far larger than that.
    room = 10 * math.sqrt(tolerance) + (1e-14) ** (1 / len(layers))
    return Finding(
        "balance",
        "every layer has the L-th roots of the product's singular values",
        standing_of(gap / float(roots[0]), room),
        tuple(float(root) for root in roots),
        gap / float(roots[0]),
        room,
        "It follows from balance.",
        "completion/lemma-f1",
    )


def _least_distance(layers: Layers, norms: Sequence[float]) -> float:
    r"""Lower bound: layers moved by $d$ change $C_l$ by at most $2\sqrt2\,w d + d^2$, $w$ their spectral norm."""
    best = 0.0
    for (below, above), size in zip(itertools.pairwise(layers), norms, strict=True):
        w = math.sqrt(2.0) * max(np.linalg.norm(below, 2), np.linalg.norm(above, 2))
        best = max(best, size / (w + math.sqrt(w**2 + size)) if size > 0 else 0.0)
    return float(best)


def _distance(layers: Layers) -> float:
    """Distance to balanced layers with the same product, whose hidden bases are turned towards the given ones."""
    rest = [np.asarray(layer) for layer in balanced_representative(as_params(layers))]
    turns = [np.eye(len(layer)) for layer in layers[:-1]]
    ends = lambda i: np.eye(rest[0].shape[1]) if i < 0 else np.eye(len(rest[-1])) if i >= len(turns) else turns[i]  # noqa: E731
    for _ in range(SWEEPS):
        for i in range(len(turns)):
            pull = layers[i] @ (rest[i] @ ends(i - 1).T).T + layers[i + 1].T @ ends(i + 1) @ rest[i + 1]
            left, _, right_t = np.linalg.svd(pull)
            turns[i] = left @ right_t
    turned = [ends(i) @ layer @ ends(i - 1).T for i, layer in enumerate(rest)]
    return math.sqrt(sum(float(np.sum((a - b) ** 2)) for a, b in zip(layers, turned, strict=True)))


# ---- Ranks and forms -------------------------------------------------------------------------------------------------


def _spectrum(widths: tuple[int, ...], layers: Layers, values: np.ndarray) -> list[Finding]:
    values = values[: min(widths)]
    rank = _rank(values)
    found = [
        Finding("product", "singular values of the product", value=tuple(map(float, values))),
        Finding(
            "product", "rank of the product, of the largest that the widths allow", value=f"{rank} of {min(widths)}"
        ),
    ]
    if rank:
        stable, effective = float(spectrum_stable_rank(values)), float(spectrum_effective_rank(values))
        found += [
            Finding("product", "stable rank", value=stable, source="core.stable_rank"),
            Finding("product", "effective rank", value=effective, source="core.effective_rank"),
            Finding("product", "condition number on its range", value=float(values[0] / values[rank - 1])),
        ]
    else:
        reason = (
            "The product is zero, but a gradient of the loss moves a layer: those beside it are not zero."
            if _moves(layers)
            else "The product is zero, and so is every gradient: it has no direction to grow in."
        )
        found.append(Finding("product", "stable rank", STANDING.silent, reason=reason))
    conditions = []
    for layer in layers:
        own = np.linalg.svd(layer, compute_uv=False)
        conditions.append(float(own[0] / own[-1]) if own[-1] > 0 else math.inf)
    found.append(Finding("product", "condition number of each layer", value=tuple(conditions)))
    return found


def _moves(layers: Layers) -> bool:
    """Whether some layer has a gradient for some loss: the products before and after it are not zero."""
    parts = ((layers[:i], layers[i + 1 :]) for i in range(len(layers)))
    return any(all(not part or bool(np.any(multiply(part))) for part in pair) for pair in parts)


def _rank(values: np.ndarray) -> int:
    return int(np.sum(values > RANK_TOLERANCE * values[0])) if values[0] > 0 else 0


def _form(layers: Layers, product: np.ndarray, values: np.ndarray) -> list[Finding]:
    """Normal form of the layers over their own product: what runs through, and what no neighbour sees."""
    rank = _rank(values)
    if len(layers) < 2 or rank == 0:
        return []
    left, _, right_t = np.linalg.svd(product)
    turned = [layers[0] @ right_t.T, *layers[1:-1], left.T @ layers[-1]]
    sigma = np.where(np.arange(len(values)) < rank, values, 0.0)
    try:
        form = canonical_form(turned, sigma, range(1, rank + 1))
    except (HypothesisError, ValueError) as error:
        return [Finding("product", "normal form of the layers", STANDING.silent, reason=str(error))]
    return [
        *_unseen(layers),
        Finding(
            "product",
            "condition numbers of the hidden bases of the normal form",
            value=tuple(map(float, form.conditions)),
            residual=form.reconstruction,
            reason="The residual is that of the layers rebuilt from the form.",
            source="landscape.canonical_form",
        ),
    ]


def _unseen(layers: Layers) -> list[Finding]:
    """Parts of the layers that no input reaches, and parts that no output sees."""
    written, read = [], []
    for i, layer in enumerate(layers):
        if i + 1 < len(layers):
            written.append(float(np.linalg.norm(layer - _range(multiply(layers[i + 1 :]).T) @ layer)))
        if i:
            read.append(float(np.linalg.norm(layer - layer @ _range(multiply(layers[:i])))))
    return [
        Finding("product", "norms of what layers write and none of the later ones reads", value=tuple(written)),
        Finding("product", "norms of what layers read and none of the earlier ones writes", value=tuple(read)),
    ]


def _range(matrix: np.ndarray) -> np.ndarray:
    """Projection on the range of a matrix."""
    left, values, _ = np.linalg.svd(matrix, full_matrices=False)
    kept = left[:, : _rank(values)]
    return kept @ kept.T
