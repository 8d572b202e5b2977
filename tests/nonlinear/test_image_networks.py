"""Image classifiers: layers, counts, optimisers and averages of ranks, against NumPy and published numbers."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import NumericalError
from deeplinear.datasets import clusters
from deeplinear.models import Images
from deeplinear.nonlinear import (
    ConvolutionStudy,
    Protocol,
    ReLUNetwork,
    ReLUStudy,
    augmented,
    enlarged,
    gaussian_relu,
    identity_relu,
    layer_tensors,
    resnet,
    run_relu_study,
    train_classifier,
    unfolded,
    vgg,
    weight_ranks,
)
from deeplinear.nonlinear._convolutional import BATCH, Block, Normalised
from nonlinear.plain_networks import block as plain_block


def images(seed: int, count: int = 60, side: int = 4, classes: int = 3) -> Images:
    """Noise around one pattern for each class."""
    rng = np.random.default_rng(seed)
    patterns = rng.integers(0, 200, (classes, side, side, 2))
    labels = np.arange(2 * count) % classes
    pixels = (patterns[labels] + rng.integers(0, 50, (2 * count, side, side, 2))).astype(np.uint8)
    return Images(pixels[:count], labels[:count], pixels[count:], labels[count:], classes)


@pytest.mark.covers("completion:F35")
def test_a_kernel_is_unfolded_by_input_channels(seed: int) -> None:
    kernel = np.random.default_rng(seed).standard_normal((4, 3, 2, 5))  # 4 outputs, 3 inputs, window 2 x 5
    matrix = unfolded(kernel)
    assert matrix.shape == (3, 4 * 2 * 5)
    for row in range(3):
        np.testing.assert_array_equal(matrix[row], np.concatenate([kernel[out, row].ravel() for out in range(4)]))
    np.testing.assert_array_equal(unfolded(kernel.transpose(2, 3, 1, 0), "HWIO"), matrix)
    np.testing.assert_array_equal(unfolded(kernel[:, :, 0, 0]), kernel[:, :, 0, 0])


@pytest.mark.covers("completion:F35")
def test_kernels_of_other_windows_and_biases(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tensors = {
        "sequence": rng.standard_normal((4, 3, 5)),
        "sequence.bias": rng.standard_normal((4, 1)),  # as in equinox
        "volume": rng.standard_normal((4, 3, 2, 3, 2)),
        "volume.bias": rng.standard_normal((4, 1, 1, 1)),
        "norm": rng.standard_normal(4),
        "cls_token": rng.standard_normal((1, 1, 4)),
        "encoder.pos_embedding": rng.standard_normal((1, 9, 4)),
    }
    found = weight_ranks(tensors)
    assert [(layer.name, layer.shape) for layer in found.layers] == [("sequence", (3, 20)), ("volume", (3, 48))]
    rows = [np.concatenate([tensors["volume"][out, row].ravel() for out in range(4)]) for row in range(3)]
    np.testing.assert_array_equal(unfolded(tensors["volume"]), rows)
    np.testing.assert_array_equal(
        unfolded(tensors["sequence"].transpose(2, 1, 0), "HWIO")[1], tensors["sequence"][:, 1].ravel()
    )
    assert weight_ranks({"readout.weight": tensors["sequence"][:1]}).layers[0].shape == (3, 5)  # one output channel
    network = eqx.nn.Conv1d(3, 4, 5, key=jax.random.key(seed))
    assert list(layer_tensors(network)) == ["weight"]


@pytest.mark.covers("completion:F35", "completion:E15")
def test_the_mix_of_shapes_orders_untrained_networks(seed: int) -> None:
    """In the specification's trial the published average falls with depth before any training, hidden ones do not."""
    depths = (3, 5, 7, 9)
    starts = [gaussian_relu(jax.random.key(seed), (256, *([128] * (depth - 1)), 10)) for depth in depths]
    ranks = [weight_ranks(layer_tensors(start)) for start in starts]
    published = [one.average() for one in ranks]
    hidden = [one.average("hidden") for one in ranks]
    assert all(after < before - 0.5 for before, after in itertools.pairwise(published))
    assert max(hidden) - min(hidden) < 1 and 101 < np.mean(hidden) < 104  # 102.9 there
    assert 108 < published[0] < 111 and 103 < published[-1] < 106


@pytest.mark.covers("completion:F35")
def test_three_averages_of_ranks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tensors = {
        "first": rng.standard_normal((8, 3, 3, 3)),
        "norm": np.ones(8),
        "second": rng.standard_normal((8, 8, 3, 3)),
        "third": rng.standard_normal((8, 8, 3, 3)),
        "last": rng.standard_normal((10, 8)),
    }
    found = weight_ranks(tensors)
    assert [layer.name for layer in found.layers] == ["first", "second", "third", "last"]

    def effective(kernel: np.ndarray) -> float:
        matrix = kernel.transpose(1, 0, 2, 3).reshape(kernel.shape[1], -1) if kernel.ndim == 4 else kernel
        values = np.linalg.svd(matrix, compute_uv=False)
        shares = values / values.sum()
        return float(np.exp(-np.sum(shares * np.log(shares))))

    by_hand = [effective(tensors[name]) for name in ("first", "second", "third")]
    assert found.average() == pytest.approx(np.mean(by_hand), rel=1e-12)
    assert found.average("hidden") == pytest.approx(np.mean(by_hand[1:]), rel=1e-12)
    assert found.by_shape() == pytest.approx({(3, 72): by_hand[0], (8, 72): np.mean(by_hand[1:])}, rel=1e-12)
    assert found.average("hidden") != pytest.approx(found.average(), rel=1e-3)
    stable = np.linalg.norm(tensors["last"]) ** 2 / np.linalg.norm(tensors["last"], 2) ** 2
    assert found.layers[-1].stable == pytest.approx(stable, rel=1e-12)
    assert "all but last" in str(found)


@pytest.mark.covers("completion:F35")
def test_ranks_of_what_has_none_are_refused() -> None:
    with pytest.raises(ValueError, match="layer a is zero"):
        weight_ranks({"a": np.zeros((2, 2))})
    with pytest.raises(ValueError, match="no array with two axes or more"):
        weight_ranks({"bias": np.ones(3)})
    with pytest.raises(ValueError, match="two axes or more"):
        unfolded(np.ones(2))
    with pytest.raises(ValueError, match=r"tensors\['a'\] must have at least one row"):
        weight_ranks({"a": np.ones((0, 3))})
    with pytest.raises(ValueError, match=r"layer a: unfolded: kernel must be finite, but entry \(1, 0\) is nan"):
        weight_ranks({"b": np.eye(2), "a": np.array([[1.0, 2.0], [np.nan, 0.0]])})
    with pytest.raises(ValueError, match="layout must be one of"):
        unfolded(np.ones((2, 2, 2, 2)), "OHWI")
    with pytest.raises(ValueError, match="'all but last' or 'hidden'"):
        weight_ranks({"a": np.eye(2)}).average("all")
    for method in ("average", "by_shape"):
        with pytest.raises(ValueError, match=f"{method}: rank must be 'effective' or 'stable', but is 'nuclear'"):
            getattr(weight_ranks({"a": np.eye(2)}), method)(rank="nuclear")
    assert np.isnan(weight_ranks({"a": np.eye(2)}).average())


@pytest.mark.covers("completion:fig18", "completion:fig20")
@pytest.mark.parametrize(
    ("make", "depth", "count"),
    [
        # Numbers of parameters of the usual networks for 32 x 32 images with ten classes.
        (resnet, 18, 11_173_962),
        (resnet, 34, 21_282_122),
        (resnet, 50, 23_520_842),
        (resnet, 101, 42_512_970),
        (vgg, 11, 9_231_114 - 2752),  # with the biases of its 2752 channels, which normalisation makes idle
        (vgg, 13, 9_416_010 - 2944),
        (vgg, 16, 14_728_266 - 4224),
        (vgg, 19, 20_040_522 - 5504),
    ],
)
def test_networks_have_the_published_sizes(make, depth: int, count: int) -> None:
    network, _ = eqx.filter_eval_shape(make, jax.random.key(0), depth)
    leaves = jax.tree.leaves(eqx.filter(network, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)))
    floating = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
    assert sum(int(np.prod(leaf.shape)) for leaf in floating) == count
    assert {leaf.dtype for leaf in floating} == {np.dtype(np.float32)}


def test_unknown_depths_are_refused() -> None:
    with pytest.raises(ValueError, match="resnet: depth must be one of 18, 34, 50, 101, but is 20"):
        resnet(jax.random.key(0), 20)
    with pytest.raises(ValueError, match="vgg: depth must be one of"):
        vgg(jax.random.key(0), 12)


@pytest.mark.covers("completion:fig18")
def test_a_residual_block_against_numpy(seed: int) -> None:
    def layer(key: jax.Array, before: int, after: int, size: int, stride: int) -> Normalised:
        convolution = eqx.nn.Conv2d(before, after, size, stride, padding=size // 2, use_bias=False, key=key)
        return Normalised(convolution, eqx.nn.BatchNorm(after, BATCH, momentum=0.9, mode="batch"))

    def build(key: jax.Array) -> Block:
        keys = jax.random.split(key, 3)
        return Block((layer(keys[0], 2, 4, 3, 2), layer(keys[1], 4, 4, 3, 1)), layer(keys[2], 2, 4, 1, 2))

    block, state = eqx.nn.make_with_state(build)(jax.random.key(seed))
    given = np.random.default_rng(seed).standard_normal((5, 2, 6, 6))
    found, _ = jax.vmap(block, (0, None), (0, None), axis_name=BATCH)(jnp.asarray(given), state)
    assert block.shortcut is not None
    wanted = plain_block(block, given, (2, 1))
    np.testing.assert_allclose(found, wanted, atol=1e-12)


@pytest.mark.parametrize("name", ["sgd", "adam", "rmsprop"])
@pytest.mark.parametrize("cosine", [False, True])
@pytest.mark.covers("completion:fig22", "completion:fig26")
def test_optimisers_against_their_rules(name: str, cosine: bool, seed: int) -> None:
    """The rules as PyTorch documents them: penalty in the gradient, momentum without damping, roots before epsilon."""
    steps, lr, penalty = 7, 0.05, 0.1
    protocol = Protocol(optimiser=name, lr=lr, weight_decay=penalty, cosine=cosine)
    rng = np.random.default_rng(seed)
    start, pulls = rng.standard_normal(6), rng.standard_normal((steps, 6))
    rule = protocol.transformation(steps)
    params = jnp.asarray(start)
    moments = rule.init(params)
    other, speed, mean, square = start.copy(), np.zeros(6), np.zeros(6), np.zeros(6)
    for number, pull in enumerate(pulls):
        change, moments = rule.update(jnp.asarray(pull) + params**3, moments, params)
        params = params + change
        gradient = pull + other**3 + penalty * other
        rate = lr * (1 + np.cos(np.pi * number / steps)) / 2 if cosine else lr
        if name == "sgd":
            speed = 0.9 * speed + gradient
            other = other - rate * speed
        elif name == "adam":
            mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
            fair = mean / (1 - 0.9 ** (number + 1)), square / (1 - 0.999 ** (number + 1))
            other = other - rate * fair[0] / (np.sqrt(fair[1]) + 1e-8)
        else:
            square = 0.99 * square + 0.01 * gradient**2
            other = other - rate * gradient / (np.sqrt(square) + 1e-8)
    np.testing.assert_allclose(params, other, rtol=1e-10)


def test_flips_and_shifts(seed: int) -> None:
    given = jax.random.uniform(jax.random.key(seed), (64, 1, 3, 3), minval=1.0, maxval=2.0)
    assert augmented(jax.random.key(seed), given, flips=False, crop=0) is given
    mirrored = np.asarray(augmented(jax.random.key(seed), given, flips=True, crop=0))
    same = [np.array_equal(one, other) for one, other in zip(mirrored, given, strict=True)]
    turned = [np.array_equal(one, other[..., ::-1]) for one, other in zip(mirrored, np.asarray(given), strict=True)]
    assert all(a or b for a, b in zip(same, turned, strict=True)) and 10 < sum(turned) < 54
    shifted = np.asarray(augmented(jax.random.key(seed), given, flips=False, crop=1))
    ways = set()
    for one, other in zip(shifted[:, 0], np.asarray(given)[:, 0], strict=True):
        wide = np.pad(other, 1)
        found = [(i, j) for i in range(3) for j in range(3) if np.array_equal(one, wide[i : i + 3, j : j + 3])]
        assert len(found) == 1
        ways.add(found[0])
    assert len(ways) > 6


@pytest.mark.covers("completion:fig30", "completion:F36")
def test_starts_of_rectified_networks(seed: int) -> None:
    widths = (20, 30, 30, 30, 4)
    drawn, flat = (make(jax.random.key(seed), widths) for make in (gaussian_relu, identity_relu))
    assert [matrix.shape for matrix in drawn.weights] == [(30, 20), (30, 30), (30, 30), (4, 30)]
    assert float(jnp.std(drawn.weights[1])) == pytest.approx((2 / 30) ** 0.5, rel=0.15)
    np.testing.assert_array_equal(flat.weights[0], drawn.weights[0])
    np.testing.assert_array_equal(flat.weights[-1], drawn.weights[-1])
    for matrix in flat.weights[1:-1]:
        np.testing.assert_array_equal(matrix, np.eye(30))
    given = np.random.default_rng(seed).standard_normal(20)
    signal = given
    for matrix in drawn.weights[:-1]:
        signal = np.maximum(np.asarray(matrix) @ signal, 0)
    np.testing.assert_allclose(drawn(jnp.asarray(given), None)[0], drawn.weights[-1] @ signal, rtol=1e-12)
    with pytest.raises(ValueError, match="equally wide"):
        identity_relu(jax.random.key(0), (4, 3, 2, 1))
    with pytest.raises(ValueError, match="widths must name"):
        gaussian_relu(jax.random.key(0), (4, 3))


def test_training_against_plain_numpy() -> None:
    """One epoch of one batch, written out by hand: scaling, cross-entropy, gradient, momentum."""
    data = images(0, count=12)
    network = ReLUNetwork((jnp.asarray(np.random.default_rng(1).standard_normal((3, 32)) / 6),))
    protocol = Protocol(lr=0.3, weight_decay=0.01, epochs=2, batch=12, cosine=False, flips=False, crop=0)
    found = train_classifier(network, None, data, protocol, jax.random.key(0))
    pixels = data.train.astype(float)
    scaled = (pixels - pixels.mean((0, 1, 2))) / pixels.std((0, 1, 2))
    inputs = scaled.transpose(0, 3, 1, 2).reshape(12, -1)
    matrix, speed = np.asarray(network.weights[0]), np.zeros((3, 32))
    wanted = np.eye(3)[data.train_labels]
    losses, right = [], []
    for _ in range(2):
        scores = inputs @ matrix.T
        shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        losses.append(-np.mean(np.log((shares * wanted).sum(1))))
        right.append(np.mean(scores.argmax(1) == data.train_labels))
        speed = 0.9 * speed + (shares - wanted).T @ inputs / 12 + 0.01 * matrix
        matrix = matrix - 0.3 * speed
    np.testing.assert_allclose(found.loss, losses, rtol=1e-12)
    np.testing.assert_allclose(found.train_accuracy, right)
    np.testing.assert_allclose(found.network.weights[0], matrix, rtol=1e-10, atol=1e-12)
    tested = (data.test - pixels.mean((0, 1, 2))) / pixels.std((0, 1, 2))
    scores = tested.transpose(0, 3, 1, 2).reshape(12, -1) @ matrix.T
    assert found.test_accuracy[-1] == pytest.approx(np.mean(scores.argmax(1) == data.test_labels))
    hot = Protocol(lr=1e300, weight_decay=1.0, epochs=4, batch=12, cosine=False, flips=False, crop=0)
    with pytest.raises(NumericalError, match="not finite in epoch"):
        train_classifier(network, None, data, hot, jax.random.key(0))
    with pytest.raises(ValueError, match="at least one batch of 64"):
        train_classifier(network, None, data, Protocol(batch=64), jax.random.key(0))


@pytest.mark.slow
@pytest.mark.covers("completion:F36", "completion:fig30")
def test_orderings_of_both_starts_on_clusters() -> None:
    """The specification's substitute, in its size, beside its means over two seeds, which differ by some per cent."""
    study = ReLUStudy(data="clusters", width=128, batch=100, runs=1)
    found = run_relu_study(study, clusters())
    stable = found["averages"][:, 0, :, 1, 0]  # members (starts, then depths), before and after
    gaussian, identity = stable[:3], stable[3:]
    np.testing.assert_allclose(gaussian, [[44.0, 39.4], [38.7, 37.5], [35.7, 35.0]], rtol=0.05)
    np.testing.assert_allclose(identity, [[44.0, 39.4], [86.0, 38.0], [107.0, 47.9]], rtol=0.05)
    assert (np.diff(gaussian[:, 1]) < -0.5).all()  # falls with depth
    assert identity[2, 1] > identity[0, 1] + 5  # ends higher in the deepest network, though not at depth 3
    assert identity[2, 1] > gaussian[2, 1] + 5  # and above the Gaussian start; at depth 3 there is hardly a difference
    np.testing.assert_allclose(found["loss"][:3, 0, -1], [7e-3, 2e-3, 6e-4], rtol=0.3)


@pytest.mark.covers("completion:F36")
def test_a_study_goes_on_where_it_was_stopped() -> None:
    data = images(0)
    study = ReLUStudy(data="digits", depths=(2, 3), width=8, epochs=2, batch=20, runs=2)
    heard: list[float] = []
    whole = run_relu_study(study, data, progress=lambda fraction, text: heard.append(fraction))
    assert heard == pytest.approx(np.arange(1, 17) / 16)
    assert whole["averages"].shape == (4, 2, 2, 2, 2) and whole["ranks"].shape == (4, 2, 2, 2, 3)
    assert np.isnan(whole["ranks"][0, ..., 2]).all() and not np.isnan(whole["ranks"][1]).any()
    np.testing.assert_allclose(whole["ranks"][3, :, 0, :, 1], 8.0, rtol=1e-6)  # an identity of width 8, before training
    np.testing.assert_array_equal(whole["loss"][0], whole["loss"][2])  # at depth 2 both starts are one

    class Stopped(Exception):
        pass

    def stop(fraction: float, text: str) -> None:
        if fraction > 0.5:
            raise Stopped

    kept: dict[str, dict[str, np.ndarray]] = {}
    with pytest.raises(Stopped):
        run_relu_study(study, data, progress=stop, kept=kept)
    assert list(kept) == ["gaussian-2-1", "gaussian-2-2", "gaussian-3-1", "gaussian-3-2"]
    rest: list[float] = []
    again = run_relu_study(study, data, progress=lambda fraction, text: rest.append(fraction), kept=kept)
    assert len(rest) == 8 and min(rest) > 0.5
    for name in ("loss", "ranks", "averages", "rows"):
        np.testing.assert_array_equal(again[name], whole[name])


def test_studies_refuse_bad_values() -> None:
    with pytest.raises(ValueError, match="family is 'resnets'"):
        ConvolutionStudy(family="resnets")
    with pytest.raises(ValueError, match="depths must go up and be among 11, 13, 16, 19 for vgg"):
        ConvolutionStudy(family="vgg", depths=(18,))
    with pytest.raises(ValueError, match="optimiser is 'sdg'"):
        ConvolutionStudy(optimiser="sdg")
    with pytest.raises(ValueError, match="depths must go up from 2"):
        ReLUStudy(depths=(1, 2))
    with pytest.raises(ValueError, match="data is 'cifar'"):
        ReLUStudy(data="cifar")
    with pytest.raises(ValueError, match="images must be at most 60"):
        run_relu_study(ReLUStudy(data="digits", images=100), images(0))


def test_names_and_enlargement() -> None:
    network, _ = eqx.filter_eval_shape(vgg, jax.random.key(0), 11, width=4)
    filled = jax.tree.map(lambda leaf: np.ones(leaf.shape) if hasattr(leaf, "shape") else leaf, network)
    names = list(layer_tensors(filled))
    assert names[0] == "stages[0][0].convolution.weight" and names[-1] == "head.weight" and len(names) == 9
    data = images(0, side=5)
    large = enlarged(data).train
    assert large.shape[1:3] == (20, 20)
    np.testing.assert_array_equal(large[:, ::4, ::4], data.train)
    assert enlarged(images(0, side=16)).train.shape[1:3] == (16, 16)
