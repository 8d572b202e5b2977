"""Figure 5C on two-layer networks: the kernel of a funnel over time, by SciPy's flow and by plain NumPy kernels."""

import dataclasses

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.experiments import Context, experiment
from deeplinear.experiments.catalog.exact._delay import Delay, _draw
from deeplinear.experiments.catalog.exact._tasks import layers_of
from deeplinear.plots import paper_style

INTEGRATOR = 1e-7
"""Of a kernel distance of order one, by a flow at a relative tolerance of 1e-10."""


def kernel(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Tangent kernel of all outputs at the unit inputs."""
    return np.kron(np.eye(len(second)), first.T @ first) + np.kron(second @ second.T, np.eye(first.shape[1]))


@pytest.mark.covers("exact:fig5c")
def test_kernel_distances_are_those_of_the_flow_and_claims_hold() -> None:
    figure = experiment("exact/fig5c")
    spec = dataclasses.replace(figure.preset("paper"), lams=5, tasks=10, overlay=1.0)
    dataset = figure.run(spec, Context())
    claims = figure.claims(dataset, spec)
    assert len(claims) == 5 and [claim.statement for claim in claims if not claim.holds] == []
    for lam, task in ((-4.5, 3), (9.0, 0)):
        target, matrix, turn = _draw(spec, spec.seed + task)
        first, second = map(np.asarray, layers_of(matrix, lam, turn))
        assert first.shape == (2, 3) and second.shape == (2, 2)
        assert np.allclose(second.T @ second - first @ first.T, lam * np.eye(2), atol=1e-12)

        def flow(t: float, y: np.ndarray, target: np.ndarray = target) -> np.ndarray:
            one, two = y[:6].reshape(2, 3), y[6:].reshape(2, 2)
            gap = target - two @ one
            return np.concatenate([(two.T @ gap).ravel(), (gap @ one.T).ravel()])

        times = dataset["time"].to_numpy()
        times = times[(times > 0.1) & (times < 200)][::10]
        start = np.concatenate([first.ravel(), second.ravel()])
        path = solve_ivp(flow, (0, times[-1]), start, "DOP853", times, rtol=1e-10, atol=1e-12).y.T
        before = kernel(first, second)
        for t, y in zip(times, path, strict=True):
            now = kernel(y[:6].reshape(2, 3), y[6:].reshape(2, 2))
            wanted = 1 - np.sum(before * now) / (np.linalg.norm(before) * np.linalg.norm(now))
            found = dataset["distance"].sel(lam=lam, time=t).isel(task=task)
            assert float(found) == pytest.approx(wanted, abs=INTEGRATOR)
    # The picture shows the task whose kernel moves a median distance from the most negative scale.
    ends = dataset["distance"].isel(lam=0, time=-1).to_numpy()
    assert np.sum(ends < ends[int(dataset["shown"])]) == 5
    with paper_style():
        assert len(figure.plot(dataset, spec).axes) == 3


def test_funnels_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="widths must be those of a funnel"):
        Delay(widths=(2, 2, 4))
    with pytest.raises(ValueError, match="lams must be odd"):
        Delay(lams=20)
    with pytest.raises(ValueError, match="samples must be at least 3"):
        Delay(samples=2)
