"""Ranks of image classifiers' layers on Fashion-MNIST: the `large` presets of completion/fig18 to fig30, on a GPU.

No peer takes part. Every training is kept as a file in a folder, so that a second call, on another day, does what is
missing; what is complete is written to `results/images-DEVICE.json`, with its claims. A residual network of depth 101
takes 13 s an epoch on an H200, VGG-11 1.2 s, and each compiles for 10 to 80 s. What is kept of other images or other
settings is trained again. A `note` in a file of results, written by hand, says how its trainings differ from what this
script does now; it stays with them.

    python benchmarks/images.py completion/fig20 --data FOLDER    # FOLDER has Fashion-MNIST's files
    python benchmarks/images.py completion/fig22 --runs 2         # fewer trainings of each depth
    python benchmarks/images.py --gather                          # write the results from what is kept
    python benchmarks/images.py --claims --output FILE            # claims of stored numbers, written beside them
    python benchmarks/images.py --show                            # the note and the claims that are stored
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np
from common import RESULTS, describe, load, machine, results_path

from deeplinear.datasets import fashion_mnist
from deeplinear.experiments import experiment
from deeplinear.experiments.catalog.completion import Folder, read_images
from deeplinear.models import Images
from deeplinear.nonlinear import ConvolutionStudy, ReLUStudy, run_convolution_study, run_relu_study

NAMES = (*(f"completion/fig{number}" for number in (18, 20, 22, 24, 26, 28)), "completion/fig30")
DIGITS = 6


def plain(values: Any) -> Any:
    """Arrays as lists, rounded, with null for what is not there."""
    array = np.asarray(values)
    if array.dtype.kind != "f":
        return array.tolist()
    if array.ndim:
        return [plain(value) for value in array]
    return None if np.isnan(array) else float(f"{array:.{DIGITS}g}")


def study(name: str, spec: ConvolutionStudy | ReLUStudy, data: Images, kept: Folder) -> dict[str, Any]:
    """What a study found, with its trainings from the folder or made now."""
    run: Any = run_convolution_study if isinstance(spec, ConvolutionStudy) else run_relu_study
    begun = time.perf_counter()
    found = run(spec, data, kept=kept, progress=lambda fraction, text: print(f"{fraction:6.1%} {text}", flush=True))
    print(f"{name}: {time.perf_counter() - begun:.0f} s")
    layers = found.pop("layers")
    values = {key: plain(value) for key, value in found.items()}
    return {"spec": dataclasses.asdict(spec), "found": {**values, "layers": layers}}


def claims(name: str, stored: dict[str, Any]) -> list[dict[str, Any]]:
    """What the figure claims, measured on the numbers of a study."""
    dataset, spec = read_images(stored)
    return [
        {"statement": one.statement, "measured": plain(one.measured), "expected": one.expected, "verdict": one.verdict}
        | {"note": one.note}
        for one in experiment(name).claims(dataset, spec)
    ]


def show(stored: dict[str, Any]) -> None:
    """The claims as they are stored."""
    print(f"{describe(stored['machine'])}\n{stored.get('note', '')}")
    for name, one in stored["studies"].items():
        print(f"\n{name}: {experiment(name).shows}")
        for claim in one["claims"]:
            print("  {statement}: {measured} ({expected}; {verdict}). {note}".format(**claim))


def write(path: Path, stored: dict[str, Any]) -> None:
    """The studies with the claims on them."""
    studies = {name: one | {"claims": claims(name, one)} for name, one in stored["studies"].items()}
    path.write_text(json.dumps(stored | {"studies": studies}) + "\n", encoding="utf-8")
    show(stored | {"studies": studies})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(NAMES))
    parser.add_argument("--data", default=None, help="folder of Fashion-MNIST; Debian's unless told")
    parser.add_argument("--kept", default="build/images", help="folder of trainings")
    parser.add_argument("--runs", type=int, default=None, help="trainings of each depth; as in the preset unless told")
    parser.add_argument("--gather", action="store_true", help="train nothing, write what is complete")
    parser.add_argument("--claims", action="store_true", help="train nothing, write claims beside what is stored")
    parser.add_argument("--show", action="store_true", help="train nothing, write nothing, print what is stored")
    parser.add_argument("--output", default=None)
    given = parser.parse_args()
    path = Path(given.output) if given.output else results_path("images")
    if given.claims or given.show:
        paths = [path] if given.output or path.exists() else sorted(RESULTS.glob("images-*.json"))
        if not all(one.exists() for one in paths) or (given.claims and len(paths) != 1):
            parser.error(f"there is no {path}; name the file of the stored numbers by --output.")
        for one in paths:
            show(load(one)) if given.show else write(one, load(one))
        return
    data = fashion_mnist(given.data) if given.data else fashion_mnist()
    stored = load(path) if path.exists() else {"machine": machine(), "studies": {}}
    for name in given.names or NAMES:
        spec = experiment(name).presets["large"]
        kept = Folder(Path(given.kept) / experiment(name).key(dataclasses.replace(spec, runs=1)))
        spec = dataclasses.replace(spec, runs=given.runs) if given.runs else spec
        missing = spec.missing(data, kept)
        if given.gather and missing:
            print(f"{name}: {', '.join(missing)} missing")
            continue
        studies = stored["studies"] | {name: study(name, spec, data, kept)}
        stored["studies"] = {one: studies[one] for one in NAMES if one in studies}
        write(path, stored)
        print(f"{path}: {describe(stored['machine'])}")


if __name__ == "__main__":
    main()
