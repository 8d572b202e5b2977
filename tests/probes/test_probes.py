"""Probes against plain NumPy, dense Kronecker kernels and multiprecision arithmetic."""

import itertools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.linalg

from deeplinear.models import AbstractModel, Completion, DeepLinear, Problem, SquaredDistance
from deeplinear.probes import (
    AbstractProbe,
    Conserved,
    Drift,
    Entries,
    HeldOutError,
    KernelDistance,
    KernelMovement,
    LayerSingularValues,
    ReconstructionError,
    as_probe,
    as_probes,
    dimension_names,
    layer_alignment,
    layer_balancedness,
    loss,
    probe,
    product,
    product_effective_rank,
    product_stable_rank,
    singular_values,
)
from zoo import ALL_PROBES, INP, OUT, all_probes

ROUNDING = 1e-12  # some hundreds of operations on numbers of order one
CLOSE = 1e-10  # relative error of a distance built from rounded movements
MODEL = DeepLinear((INP, 4, 3, OUT))
MASK = np.array([[1, 0, 1], [0, 1, 0]])

Layers = list[np.ndarray]


class Case:
    """A state, a reference state, a target and a problem."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.target = rng.normal(size=(OUT, INP))
        self.layers = [rng.normal(size=shape) for shape in MODEL.shapes]
        self.origin = [w + 0.3 * rng.normal(size=w.shape) for w in self.layers]
        self.params = tuple(jnp.asarray(w) for w in self.layers)
        self.reference = tuple(jnp.asarray(w) for w in self.origin)
        self.problem = Problem(MODEL, Completion(self.target, MASK), 0.2)
        self.probes = all_probes(self.reference, self.target, MASK)
        self.values = evaluate_all(self.probes, self.params, self.problem)
        stacked = tuple(jnp.stack([a, b]) for a, b in zip(self.params, self.reference, strict=True))
        self.batch = evaluate_batch(self.probes, stacked, self.problem)


# Traced once for all states and seeds: a probe rebuilt with other numbers takes the code that is there.
@eqx.filter_jit
@eqx.debug.assert_max_traces(max_traces=1)
def evaluate_all(probes: dict[str, AbstractProbe], params, problem: Problem):
    return {name: item(0.0, params, problem) for name, item in probes.items()}


@eqx.filter_jit
def evaluate_batch(probes: dict[str, AbstractProbe], params, problem: Problem):
    def one(layers):
        return {name: item(0.0, layers, problem) for name, item in probes.items()}

    return jax.vmap(one)(params)


@eqx.filter_jit
def evaluate(item: AbstractProbe, params, problem: Problem):
    return item(0.0, params, problem)


@pytest.fixture(scope="module")
def case(seed: int) -> Case:
    return Case(seed)


# ---- oracles


def chain(layers: Layers) -> np.ndarray:
    return np.linalg.multi_dot([*layers[::-1], np.eye(INP)])


def gradient(layers: Layers, target: np.ndarray) -> Layers:
    residual = MASK * (chain(layers) - target)
    w1, w2, w3 = layers
    plain = [w2.T @ w3.T @ residual, w3.T @ residual @ w1.T, residual @ w1.T @ w2.T]
    return [g + 0.2 * w for g, w in zip(plain, layers, strict=True)]


def jacobian(layers: Layers) -> np.ndarray:
    """Derivative of the row-major entries of the product by those of all layers, from Kronecker products."""
    w1, w2, w3 = layers
    return np.hstack([np.kron(w3 @ w2, np.eye(INP)), np.kron(w3, w1.T), np.kron(np.eye(OUT), (w2 @ w1).T)])


def kernel(layers: Layers) -> np.ndarray:
    return jacobian(layers) @ jacobian(layers).T


def imbalance(layers: Layers) -> Layers:
    return [b.T @ b - a @ a.T for a, b in itertools.pairwise(layers)]


def nearest_multiple(matrix: np.ndarray) -> float:
    """Multiple of the identity nearest to a matrix, by least squares over its entries."""
    identity = np.eye(len(matrix)).reshape(-1, 1)
    return np.linalg.lstsq(identity, matrix.ravel(), rcond=None)[0][0]


def leading(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leading left and right singular vectors from the symmetric eigenproblems."""
    return np.linalg.eigh(matrix @ matrix.T)[1][:, -1], np.linalg.eigh(matrix.T @ matrix)[1][:, -1]


def modes(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Left and right singular vectors in columns, largest first, from the symmetric eigenproblems."""
    rank = min(matrix.shape)
    left = np.linalg.eigh(matrix @ matrix.T)[1][:, ::-1][:, :rank]
    right = np.linalg.eigh(matrix.T @ matrix)[1][:, ::-1][:, :rank]
    return left, right * np.sign(np.sum(left * (matrix @ right), axis=0))


def entropy_rank(values: np.ndarray) -> float:
    shares = values / values.sum()
    return np.exp(-np.sum(shares * np.log(shares)))


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return 1 - np.sum(a * b) / np.linalg.norm(a) / np.linalg.norm(b)


def spectrum(c: Case) -> np.ndarray:
    return np.asarray(scipy.linalg.svdvals(chain(c.layers)))


def multiples(c: Case) -> list[tuple[np.ndarray, float]]:
    return [(m, nearest_multiple(m)) for m in imbalance(c.layers)]


ORACLES: dict[str, Callable[[Case], object]] = {
    "loss": lambda c: (
        0.5 * np.sum(MASK * (chain(c.layers) - c.target) ** 2) + 0.1 * sum(np.sum(w**2) for w in c.layers)
    ),
    "gradient_norm": lambda c: np.sqrt(sum(np.sum(g**2) for g in gradient(c.layers, c.target))),
    "product": lambda c: chain(c.layers),
    "singular_values": spectrum,
    "product_effective_rank": lambda c: entropy_rank(spectrum(c)),
    "product_stable_rank": lambda c: np.sum(chain(c.layers) ** 2) / np.linalg.norm(chain(c.layers), 2) ** 2,
    "product_nuclear_norm": lambda c: np.linalg.norm(chain(c.layers), "nuc"),
    "product_numerical_rank": lambda c: np.linalg.matrix_rank(chain(c.layers)),
    "layer_norms": lambda c: [np.sqrt(np.trace(w @ w.T)) for w in c.layers],
    "layer_balancedness": lambda c: [np.linalg.norm(m) for m in imbalance(c.layers)],
    "layer_lambda": lambda c: [m for _, m in multiples(c)],
    "layer_lambda_residual": lambda c: [np.linalg.norm(a - m * np.eye(len(a))) for a, m in multiples(c)],
    "layer_lambda_operator_residual": lambda c: [np.linalg.norm(a - m * np.eye(len(a)), 2) for a, m in multiples(c)],
    "layer_alignment": lambda c: [abs(leading(a)[0] @ leading(b)[1]) for a, b in itertools.pairwise(c.layers)],
    "ntk": lambda c: kernel(c.layers),
    "layer_2_singular_values": lambda c: np.sqrt(np.linalg.eigvalsh(c.layers[1] @ c.layers[1].T)[::-1]),
    "conserved_1": lambda c: imbalance(c.layers)[0],
    "drift": lambda c: [np.linalg.norm(a - b) for a, b in zip(imbalance(c.layers), imbalance(c.origin), strict=True)],
    "entries": lambda c: [chain(c.layers)[1, 2], chain(c.layers)[0, 0]],
    "left_alignment": lambda c: np.abs(np.sum(modes(chain(c.layers))[0] * modes(c.target)[0], axis=0)),
    "right_alignment": lambda c: np.abs(np.sum(modes(chain(c.layers))[1] * modes(c.target)[1], axis=0)),
    "mode_strengths": lambda c: np.diag(modes(c.target)[0].T @ chain(c.layers) @ modes(c.target)[1]),
    "reconstruction_error": lambda c: np.linalg.norm(chain(c.layers) - c.target) / np.linalg.norm(c.target),
    "held_out_error": lambda c: np.sqrt(np.mean((chain(c.layers) - c.target)[MASK == 0] ** 2)),
    "weights": lambda c: np.concatenate([layer.ravel() for layer in c.layers]),
    "kernel_distance": lambda c: distance(kernel(c.layers), kernel(c.origin)),
    "kernel_movement": lambda c: np.linalg.norm(kernel(c.layers) - kernel(c.origin)) / np.linalg.norm(kernel(c.origin)),
}

# Vectors from eigenproblems of W W^T lose digits by the square of the ratio of singular values, here seldom 1e-4.
LOOSE = {"layer_alignment": 1e-7, "left_alignment": 1e-7, "right_alignment": 1e-7, "mode_strengths": 1e-7}


def test_every_probe_has_an_oracle() -> None:
    assert set(ORACLES) == set(ALL_PROBES)


@pytest.mark.parametrize("name", ALL_PROBES)
def test_value(name: str, case: Case) -> None:
    tolerance = LOOSE.get(name, ROUNDING)
    np.testing.assert_allclose(case.values[name], ORACLES[name](case), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ALL_PROBES)
def test_dimensions_are_named(name: str, case: Case) -> None:
    item = case.probes[name]
    value = jax.eval_shape(lambda params: item(0.0, params, case.problem), case.params)
    names = dimension_names(item, len(value.shape))
    assert len(names) == len(set(names)) == len(value.shape)
    lengths = {"row": OUT, "column": INP, "mode": min(OUT, INP), "layer": 3, "pair": 2}
    for label, length in zip(names, value.shape, strict=True):
        assert lengths.get(label, length) == length


@pytest.mark.parametrize("name", ALL_PROBES)
def test_compilation_and_batches_change_nothing(name: str, case: Case) -> None:
    plain = case.probes[name](0.0, case.params, case.problem)
    np.testing.assert_allclose(case.values[name], plain, rtol=ROUNDING, atol=ROUNDING)
    np.testing.assert_allclose(case.batch[name][0], plain, rtol=ROUNDING, atol=ROUNDING)


# ---- ranks


@pytest.mark.covers("completion:F1")
def test_ranks_of_the_reference_spectrum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    u, v = (np.linalg.qr(rng.normal(size=(4, 4)))[0] for _ in range(2))
    params = (jnp.asarray(v.T), jnp.asarray(u @ np.diag([3.0, 1.0, 1.0, 0.0])))
    problem = Problem(DeepLinear((4, 4, 4)), SquaredDistance(jnp.eye(4)))
    entropy = -(0.6 * np.log(0.6) + 0.4 * np.log(0.2))
    assert float(evaluate(product_stable_rank, params, problem)) == pytest.approx(11 / 9, abs=ROUNDING)
    assert float(evaluate(product_effective_rank, params, problem)) == pytest.approx(np.exp(entropy), abs=ROUNDING)


@pytest.mark.covers("completion:F1")
def test_errors_of_a_completion() -> None:
    """Both errors of a completion by hand: a rank-one truth, its diagonal reproduced and nothing else."""
    target, problem = jnp.ones((2, 2)), Problem(DeepLinear((2, 2)), SquaredDistance(jnp.eye(2)))
    params = (jnp.array([[1.0, 0.0], [0.5, 1.0]]),)
    assert float(ReconstructionError(target)(0.0, params, problem)) == pytest.approx(np.sqrt(1.25) / 2, abs=ROUNDING)
    seen = jnp.array([[jnp.nan, 1.0], [1.0, jnp.nan]])  # what was observed is not needed
    assert float(HeldOutError(seen, jnp.eye(2))(0.0, params, problem)) == pytest.approx(np.sqrt(0.625), abs=ROUNDING)


# ---- kernel


def exact_kernel_change(layers: Layers, origin: Layers) -> tuple[float, float]:
    """Distance and relative movement of the dense kernel with 80 digits."""
    with mpmath.workdps(80):

        def gram(ws: Layers):
            prefix, suffix = [mpmath.eye(ws[0].shape[1])], [mpmath.eye(ws[-1].shape[0])]
            for w in ws[:-1]:
                prefix.append(mpmath.matrix(w.tolist()) * prefix[-1])
            for w in ws[:0:-1]:
                suffix.append(suffix[-1] * mpmath.matrix(w.tolist()))
            out, inp = ws[-1].shape[0], ws[0].shape[1]
            total = mpmath.zeros(out * inp)
            for p, s in zip(prefix, suffix[::-1], strict=True):
                t_part, s_part = s * s.T, p.T * p
                for i in range(out * inp):
                    for j in range(out * inp):
                        total[i, j] += t_part[i // inp, j // inp] * s_part[i % inp, j % inp]
            return total

        now, then = list(gram(layers)), list(gram(origin))
        norm_now, norm_then = (mpmath.sqrt(mpmath.fsum(x * x for x in k)) for k in (now, then))
        cosine = mpmath.fsum(a * b for a, b in zip(now, then, strict=True)) / norm_now / norm_then
        moved = mpmath.sqrt(mpmath.fsum((a - b) ** 2 for a, b in zip(now, then, strict=True)))
        return float(1 - cosine), float(moved / norm_then)


@pytest.mark.parametrize("size", [1e-14, 1e-7, 1e-2])
def test_small_movements_of_the_kernel_keep_their_digits(size: float, case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers = [w * (1 + size * rng.normal(size=w.shape)) for w in case.origin]
    params = tuple(jnp.asarray(w) for w in layers)
    expected_distance, expected_movement = exact_kernel_change(layers, case.origin)
    assert expected_distance < 100 * size**2
    for item, expected in (
        (KernelDistance(case.reference), expected_distance),
        (KernelMovement(case.reference), expected_movement),
    ):
        assert float(evaluate(item, params, case.problem)) == pytest.approx(expected, rel=CLOSE, abs=0)


@pytest.mark.parametrize("scale", [1e-6, 0.9, 2.0])
def test_small_rotation_beside_a_change_of_scale(scale: float, case: Case, seed: int) -> None:
    """Layers scaled and turned by 1e-7: rounding of the normalised kernel, 1e-16, is 1e-9 of the rotation."""
    rng = np.random.default_rng(seed)
    layers = [scale * w * (1 + 1e-7 * rng.normal(size=w.shape)) for w in case.origin]
    expected, _ = exact_kernel_change(layers, case.origin)
    value = evaluate(KernelDistance(case.reference), tuple(jnp.asarray(w) for w in layers), case.problem)
    assert float(value) == pytest.approx(expected, rel=1e-6, abs=0)


def test_distance_of_kernels_at_the_ends(case: Case) -> None:
    still = evaluate(KernelDistance(case.reference), case.reference, case.problem)
    assert float(still) == 0.0
    nothing = tuple(jnp.zeros_like(w) for w in case.params)
    assert float(evaluate(KernelDistance(case.reference), nothing, case.problem)) == 1.0
    assert float(evaluate(KernelMovement(case.reference), nothing, case.problem)) == pytest.approx(1.0, abs=ROUNDING)


@pytest.mark.parametrize("widths", [(3, 2), (1, 2, 1)])
def test_kernels_of_few_entries(widths: tuple[int, ...], seed: int) -> None:
    """One layer, whose kernel is the identity for ever; one entry, whose kernel is a number."""
    rng = np.random.default_rng(seed)
    model = DeepLinear(widths)
    a, b = (tuple(jnp.asarray(rng.normal(size=shape)) for shape in model.shapes) for _ in range(2))
    problem = Problem(model, SquaredDistance(jnp.ones((widths[-1], widths[0]))))
    assert float(evaluate(KernelDistance(b), a, problem)) == pytest.approx(0.0, abs=ROUNDING)
    expected = 0.0 if len(widths) == 2 else float(jnp.abs((norm2(a) - norm2(b)) / norm2(b)))
    assert float(evaluate(KernelMovement(b), a, problem)) == pytest.approx(expected, rel=ROUNDING, abs=ROUNDING)


def norm2(params):
    return sum(jnp.sum(w**2) for w in params)


# ---- names


def trace(t, params, problem):
    return jnp.trace(problem.product(params)[:, :OUT])


def corner(t, params, problem):
    return problem.product(params)[:2, :2]


def test_plain_functions_are_probes(case: Case) -> None:
    item = as_probe(trace)
    assert (item.name, dimension_names(item, 0)) == ("trace", ())
    assert dimension_names(as_probe(corner), 2) == ("corner_0", "corner_1")
    assert as_probe(item) is item
    assert as_probe(trace) == item
    assert hash(as_probe(trace)) == hash(item)
    assert float(evaluate(item, case.params, case.problem)) == pytest.approx(np.trace(chain(case.layers)[:, :OUT]))


def test_names_may_be_chosen(case: Case) -> None:
    assert probe(name="corner_of_product", dims=("a", "b"))(corner).name == "corner_of_product"
    first, second = Entries([0], [0], name="first"), Entries([1, 1], [0, 1], name="second")
    assert [item.dims for item in as_probes([first, second])] == [("first_entry",), ("second_entry",)]


def test_bad_names_are_refused() -> None:
    with pytest.raises(ValueError, match="a probe must have a name"):
        as_probe(lambda t, params, problem: t)
    with pytest.raises(TypeError, match="function"):
        probe(name="number")(3)
    with pytest.raises(ValueError, match="2 are called 'loss'"):
        as_probes([loss, product, loss])
    with pytest.raises(ValueError, match="probe 'singular_values' must give 1 dimensions"):
        dimension_names(singular_values, 2)


# ---- refusals


class Identity(AbstractModel[None]):
    """A model that is no network: its one matrix is the product."""

    @property
    def shapes(self):
        return ((OUT, INP),)

    @property
    def product_shape(self) -> tuple[int, int]:
        return (OUT, INP)

    def forward(self, params):
        return params[0], None

    def pullback(self, params, memo, cotangent):
        return (cotangent,)

    def pushforward(self, params, memo, tangent):
        return tangent[0], None

    def pullback_derivative(self, params, memo, cotangent, tangent, memo_tangent):
        return (jnp.zeros_like(cotangent),)

    def check(self, params, where):
        return None


def test_probes_of_networks_refuse_other_models(case: Case) -> None:
    problem, params = Problem(Identity(), SquaredDistance(jnp.ones((OUT, INP)))), (jnp.ones((OUT, INP)),)
    for item in (layer_alignment, layer_balancedness, Conserved(1), Drift(params), KernelDistance(params)):
        with pytest.raises(TypeError, match="must be a DeepLinear network, but is Identity"):
            item(0.0, params, problem)
    assert float(loss(0.0, params, problem)) == 0.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LayerSingularValues(0), "layer must be at least 1"),
        (lambda: Conserved(0), "pair must be at least 1"),
        (lambda: Entries([0, 1], [0]), "columns must have shape"),
        (lambda: Entries([-1], [0]), "rows must be non-negative"),
        (lambda: ReconstructionError(jnp.zeros((2, 2))), "target must not be zero"),
        (lambda: ReconstructionError([[jnp.nan]]), "target must be finite"),
        (lambda: HeldOutError(jnp.ones((2, 2)), jnp.ones((2, 2))), "at least one entry unobserved"),
        (lambda: HeldOutError(jnp.full((2, 2), jnp.nan), jnp.eye(2)), r"\(where not observed\) must be finite"),
        (lambda: HeldOutError(jnp.ones((2, 2)), 2 * jnp.eye(2)), "only 0 and 1"),
        (
            lambda: KernelDistance((jnp.zeros((2, 2)), jnp.zeros((2, 2)))),
            "kernel of reference must not be zero",
        ),
        (lambda: KernelDistance((jnp.ones((2, 3)), jnp.ones((2, 3)))), r"reference\[1\] must have shape \(any, 2\)"),
        (lambda: KernelDistance(()), "at least one layer"),
    ],
)
def test_bad_arguments_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_probes_that_do_not_fit_are_refused(case: Case) -> None:
    other = DeepLinear((2, 2))
    problem, params = Problem(other, SquaredDistance(jnp.eye(2))), (jnp.eye(2),)
    for item, message in (
        (LayerSingularValues(2), "layer must be at most 1"),
        (Conserved(1), "pair must be at most the depth - 1, 0"),
        (Entries([2], [0]), r"rows must lie in 0\.\.1, but reaches 2"),
        (case.probes["left_alignment"], "LeftAlignment: product must have shape"),
        (case.probes["right_alignment"], "RightAlignment: product must have shape"),
        (case.probes["mode_strengths"], "ModeStrengths: product must have shape"),
        (case.probes["reconstruction_error"], "ReconstructionError: target must have shape"),
        (case.probes["held_out_error"], "HeldOutError: target must have shape"),
        (case.probes["drift"], "drift: reference must have layer shapes"),
        (case.probes["kernel_distance"], r"KernelDistance \(reference\): params must have layer shapes"),
    ):
        with pytest.raises(ValueError, match=message):
            item(0.0, params, problem)


def test_unseen_index_outside_gives_nan() -> None:
    problem, params = Problem(DeepLinear((2, 2)), SquaredDistance(jnp.eye(2))), (jnp.eye(2),)
    assert np.isnan(evaluate(Entries([2], [0]), params, problem)).all()
