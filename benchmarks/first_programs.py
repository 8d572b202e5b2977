"""Programs that `first_answer.py` runs in fresh processes: ours, and the same tasks in NumPy and SciPy.

A program may print processor seconds of its parts as its last line, a JSON object; `first_answer.py` reads them.
"""

OURS = {
    "flow": """
import json, time
import deeplinear, jax
deeplinear.use_64_bit()
from deeplinear import dynamics, models, probes

def run(widths):
    target = models.spectral_target(jax.random.key(1), (widths[-1], widths[0]), [3.0, 2.0, 1.0])
    problem = models.Problem(models.DeepLinear(widths), models.SquaredDistance(target))
    start = models.Gaussian(0.1)(problem.model, jax.random.key(0))
    flow = dynamics.GradientFlow(rtol=1e-8)
    return dynamics.simulate(problem, start, flow, horizon=60.0, probes=[probes.loss]).final("loss")

marks = [time.process_time()]
for widths in ((4, 3, 3, 3), (5, 4, 4, 3)):
    assert run(widths) < 1e-8
    marks.append(time.process_time())
print(json.dumps({"first": marks[1] - marks[0], "second": marks[2] - marks[1]}))
""",
    "exact": """
import json, time
import numpy as np
import deeplinear, jax
deeplinear.use_64_bit()
from deeplinear import exact, models, probes

def curve(widths):
    target = models.spectral_target(jax.random.key(1), (widths[-1], widths[0]), [3.0, 2.0])
    problem = models.Problem(models.DeepLinear(widths), models.SquaredDistance(target))
    start = models.LambdaBalanced(1.0, 1.0, absolute_scale=0.1)(problem.model, jax.random.key(0))
    found = exact.solve(problem, start).trajectory(np.linspace(0.0, 5.0, 101), probes=[probes.loss])
    return found.final("loss")

curve((4, 2, 2))
begin = time.process_time()
assert curve((5, 2, 2)) < 1e-3
print(json.dumps({"second": time.process_time() - begin}))
""",
    "completion": """
import deeplinear
deeplinear.use_64_bit()
import numpy as np
from deeplinear.estimators import DeepMatrixCompletion

rng = np.random.default_rng(0)
truth = 3 + rng.standard_normal((30, 2)) @ rng.standard_normal((2, 28))
seen = np.where(rng.random(truth.shape) < 0.6, truth, np.nan)
model = DeepMatrixCompletion(depth=3, random_state=0).fit(seen)
assert np.abs(model.transform(seen) - truth).max() < 0.1
""",
    "lab": """
import json, pathlib, sys, time
import deeplinear
deeplinear.use_64_bit()
from fastapi.testclient import TestClient
from deeplinear.lab import Settings, create_app

def memory():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

sizes = [(i, h, o) for h in range(1, 9) for i in range(h, 9) for o in range(h, 9)][: int(sys.argv[1])]
app = create_app(Settings(answer_seconds=3600.0, run_seconds=3600.0))
with TestClient(app, base_url="http://127.0.0.1") as client:
    def answer(**values):
        begin = time.process_time()
        assert client.post("/api/rooms/lazy-rich/curves", json=values).status_code == 200
        return time.process_time() - begin
    answer()
    once = answer(inputs=6, hidden=5, outputs=5)
    several = [answer(inputs=i, hidden=h, outputs=o) for i, h, o in sizes[:5]]
    low = memory()
    several += [answer(inputs=i, hidden=h, outputs=o) for i, h, o in sizes[5:]]
    print(json.dumps({"second": once, "several": sum(several) / len(several), "megabytes": (memory() - low) / 1e6}))
""",
    "picture": """
import json, time
import deeplinear
deeplinear.use_64_bit()
from fastapi.testclient import TestClient
from deeplinear.lab import Settings, create_app

app = create_app(Settings(answer_seconds=3600.0, run_seconds=3600.0))
with TestClient(app, base_url="http://127.0.0.1") as client:
    begin = time.process_time()
    run = client.post("/api/rooms/lazy-rich/simulation/runs", json={}).json()["id"]
    told = client.get(f"/api/runs/{run}/events").text
    assert "event: done" in told, told
    print(json.dumps({"first": time.process_time() - begin}))
""",
}
"""By name."""

FLOW = """
import json, time
import numpy as np
from scipy.integrate import solve_ivp

def network(widths, seed=0):
    rng = np.random.default_rng(seed)
    u, v = (np.linalg.qr(rng.standard_normal((n, n)))[0] for n in (widths[-1], widths[0]))
    rank = min(u.shape[0], v.shape[0], min(widths))
    target = u[:, :rank] * np.arange(rank + 0.0, 0.0, -1.0) @ v[:rank]
    return target, [0.1 * rng.standard_normal((o, i)) for i, o in zip(widths[:-1], widths[1:])]

def gradients(layers, target):
    below = [np.eye(layers[0].shape[1])]
    for layer in layers:
        below.append(layer @ below[-1])
    back, found = below.pop() - target, []
    for layer, under in zip(layers[::-1], below[::-1]):
        found.append(back @ under.T)
        back = layer.T @ back
    return found[::-1]

def run(widths, horizon, method, seed=0, layers=None):
    target, start = network(widths, seed)
    start = start if layers is None else layers
    ends = np.cumsum([layer.size for layer in start])
    def unpack(flat):
        return [part.reshape(layer.shape) for part, layer in zip(np.split(flat, ends[:-1]), start)]
    def field(t, flat):
        return -np.concatenate([one.ravel() for one in gradients(unpack(flat), target)])
    flat = np.concatenate([one.ravel() for one in start])
    times = np.linspace(0.0, horizon, 101)
    found = solve_ivp(field, (0.0, horizon), flat, method=method, rtol=1e-8, atol=1e-10, t_eval=times)
    assert found.success
    return target, [unpack(column) for column in found.y.T]

def loss(target, layers):
    return 0.5 * np.sum((np.linalg.multi_dot([*layers[::-1], np.eye(target.shape[1])]) - target) ** 2)
"""
"""A gradient flow by SciPy, on which several programs build."""

PEERS = {
    "flow": f"""{FLOW}
marks = [time.process_time()]
for widths in ((4, 3, 3, 3), (5, 4, 4, 3)):
    target, path = run(widths, 60.0, "LSODA")
    assert loss(target, path[-1]) < 1e-8
    marks.append(time.process_time())
print(json.dumps({{"first": marks[1] - marks[0], "second": marks[2] - marks[1]}}))
""",
    "exact": f"""{FLOW}
curve = lambda widths: [loss(target, layers) for target, path in [run(widths, 5.0, "LSODA")] for layers in path]
curve((4, 2, 2))
begin = time.process_time()
assert curve((5, 2, 2))[-1] < 1e-2
print(json.dumps({{"second": time.process_time() - begin}}))
""",
    "dln exact": f"""{FLOW}
target, path = run((4, 2, 2), 5.0, "LSODA")
print([loss(target, layers) for layers in path])
""",
    "dln simulate": f"""{FLOW}
target, path = run((4, 3, 3, 3), 60.0, "LSODA")
np.savez("run.npz", *[loss(target, layers) for layers in path])
""",
    "dln geodesic": """
import sys
import numpy as np
from scipy.integrate import solve_ivp
from scipy.linalg import sqrtm
from scipy.optimize import root

first, last = (np.loadtxt(name, delimiter=",") for name in sys.argv[1:3])
size, units = first.shape, np.eye(first.size)

def raised(x, p):  # the metric of depth 2, inverted
    return sqrtm(x @ x.T).real @ p + p @ sqrtm(x.T @ x).real

def field(t, state):
    x, p = (half.reshape(size) for half in np.split(state, 2))
    steps = [1e-6 * unit.reshape(size) for unit in units]
    slope = [np.sum(p * (raised(x + step, p) - raised(x - step, p))) / 4e-6 for step in steps]
    return np.concatenate([raised(x, p).ravel(), -np.array(slope)])

def shot(momentum, times=None):
    start = np.concatenate([first.ravel(), momentum])
    return solve_ivp(field, (0.0, 1.0), start, t_eval=times, rtol=1e-6, atol=1e-8).y[: first.size]

half = (first + last) / 2
operator = np.array([raised(half, unit.reshape(size)).ravel() for unit in units]).T
guess = np.linalg.solve(operator, (last - first).ravel())
found = root(lambda momentum: shot(momentum)[:, -1] - last.ravel(), guess, tol=1e-6)
assert found.success
momentum = found.x.reshape(size)
print(np.sqrt(np.sum(momentum * raised(first, momentum))))
np.savetxt("path.csv", shot(found.x, np.linspace(0, 1, 101)).T)
""",
    "dln landscape": f"""{FLOW}
import h5py, sys
target = network((4, 3, 3, 3))[0]
with h5py.File(sys.argv[1]) as stored:
    layers = [np.asarray(stored[name]) for name in sorted(stored) if np.ndim(stored[name]) == 2][-3:]
flat = np.concatenate([layer.ravel() for layer in layers])
ends = np.cumsum([layer.size for layer in layers])[:-1]
def slope(flat):
    parts = [part.reshape(layer.shape) for part, layer in zip(np.split(flat, ends), layers)]
    return np.concatenate([one.ravel() for one in gradients(parts, target)])
steps = 1e-5 * np.eye(flat.size)
hessian = np.array([(slope(flat + step) - slope(flat - step)) / 2e-5 for step in steps])
print(loss(target, layers), np.linalg.norm(slope(flat)), np.linalg.eigvalsh(hessian + hessian.T) / 2)
""",
    "dln check": f"""{FLOW}
for seed in range(10):  # the layers as they flow, and their Gram matrix by its Riccati equation
    rng = np.random.default_rng(seed)
    left, right, turn = (np.linalg.qr(rng.standard_normal((n, 2)))[0] for n in (3, 4, 2))
    target, path = run((4, 2, 3), 1.0, "DOP853", seed, [0.5 * turn @ right.T, 0.5 * left @ turn.T])
    drive = np.block([[np.zeros((4, 4)), target.T], [target, np.zeros((3, 3))]])
    stacked = lambda layers: np.vstack([layers[0].T, layers[1]])
    def field(t, flat):
        gram = flat.reshape(7, 7)
        return (drive @ gram + gram @ drive - gram @ gram).ravel()
    begin, end = (stacked(path[place]) @ stacked(path[place]).T for place in (0, -1))
    found = solve_ivp(field, (0.0, 1.0), begin.ravel(), method="DOP853", rtol=1e-10, atol=1e-12)
    assert np.abs(found.y[:, -1].reshape(7, 7) - end).max() < 1e-7
""",
    "completion": """
import numpy as np
from scipy.optimize import minimize

rng = np.random.default_rng(0)
truth = 3 + rng.standard_normal((30, 2)) @ rng.standard_normal((2, 28))
seen = rng.random(truth.shape) < 0.6

def objective(flat, ridge):
    left, right = flat[: 30 * 4].reshape(30, 4), flat[30 * 4 :].reshape(4, 28)
    rest = seen * (left @ right - truth)
    slopes = ((rest @ right.T + ridge * left).ravel(), (left.T @ rest + ridge * right).ravel())
    return 0.5 * np.sum(rest**2) + 0.5 * ridge * np.sum(flat**2), np.concatenate(slopes)

found = rng.standard_normal(4 * 58)
for ridge in 10.0 ** np.arange(0, -5, -1):  # a continuation in the penalty, which keeps the rank low
    found = minimize(objective, found, (ridge,), jac=True, method="L-BFGS-B", options={"maxiter": 5000}).x
assert np.abs(found[: 30 * 4].reshape(30, 4) @ found[30 * 4 :].reshape(4, 28) - truth).max() < 0.1
""",
    "lab": f"""{FLOW}
def curve(widths):
    target, path = run(widths, 6.0, "LSODA")
    return [(loss(target, layers), np.linalg.svd(layers[1] @ layers[0])[1]) for layers in path]
curve((4, 3, 3))
begin = time.process_time()
curve((6, 5, 5))
print(json.dumps({{"second": time.process_time() - begin}}))
""",
    "picture": f"""{FLOW}
begin = time.process_time()
target, path = run((4, 3, 3), 6.0, "LSODA")
curves = [(loss(target, layers), np.linalg.svd(layers[1] @ layers[0])[1]) for layers in path]
print(json.dumps({{"first": time.process_time() - begin}}))
""",
}
"""The same tasks in NumPy and SciPy, by name."""
