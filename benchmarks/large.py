"""The `large` presets of experiments: sizes for an accelerator, each run once, with how many of its claims hold.

No peer takes part and compilation is counted in: the question is whether such a size can be had at all. An experiment
runs in a process of its own and is stopped after `CAP` seconds. About six minutes on an H200.

    python benchmarks/large.py                       # all into benchmarks/results/
    python benchmarks/large.py completion/fig1       # some of them; the others keep what is stored
    python benchmarks/large.py --show                # tables from the stored numbers
"""

import argparse
import multiprocessing
import os
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # this process and the measured one share a device
import jax

jax.config.update("jax_enable_x64", True)

from common import Timing, case, load, print_cases, results_path, row, save

from deeplinear.experiments import compute, experiment, task_of

TITLE = "Experiments at a size for an accelerator"
CAP = 200.0
NAMES = (
    *("completion/fig1", "completion/fig10", "completion/phases", "completion/fig3"),
    *("network/learning-order", "network/plateaus", "geometry/fig4.4"),
)


def work(name: str, results: Any) -> None:
    """Run one experiment, here, and put seconds and claims into `results`."""
    content = compute(task_of(name, experiment(name).presets["large"]), formats=()).content
    results.put(
        (content["timing"]["seconds"], [claim["holds"] for claim in content["claims"] if claim["holds"] is not None])
    )


def measure(name: str) -> dict[str, Any]:
    """One experiment as a case."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=work, args=(name, results))
    process.start()
    process.join(CAP)
    stopped = process.is_alive()
    process.kill()
    process.join()
    spec = experiment(name).presets["large"]
    about = f"{experiment(name).shows} As `{spec}`."
    label = "experiment, compilation counted in"
    if stopped:
        entry = row(label, Timing((CAP,), None), note=f"stopped after {CAP:g} s", at_least=True)
    elif process.exitcode:
        entry = row(label, None, note=f"the process ended with exit code {process.exitcode}")
    else:
        seconds, holds = results.get()
        note = f"{seconds:.0f} s; {sum(holds)} of {len(holds)} claims hold"
        entry = row(label, Timing((seconds,), None), error=float(len(holds) - sum(holds)), note=note)
    return case(name, about, "claims that do not hold.", [entry])


def main() -> None:
    """Measure and store, or show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NAMES, help="experiments")
    parser.add_argument("--show", action="store_true", help="tables from the stored numbers")
    arguments = parser.parse_args()
    path = results_path("large")
    data = load(path) or {"title": TITLE, "cases": []}
    if not arguments.show:
        for name in arguments.names:
            print(name, flush=True)
            found = measure(name)
            data["cases"] = [one for one in data["cases"] if one["name"] != name] + [found]
            save(path, data)
    print_cases(data)


if __name__ == "__main__":
    main()
