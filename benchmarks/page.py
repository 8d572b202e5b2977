"""Writes `docs/performance.md` from the stored results; no number of the page is typed by hand.

    python benchmarks/page.py    # after results were stored; the tests compare the page with the results

A workload is a name of results, with those of all devices side by side, `results/NAME-DEVICE.json`. Times stand as
ratios to ours, which is the first row of a case; what the page says in words it computes from the same numbers.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import RESULTS, describe, table
from first_answer import answers

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
OURS = (
    *("bures_distance", "collect", "deeplinear", "distance", "ensemble", "exact", "LinearRNN", "phase_map", "simulate"),
    *("experiment", "ours", "sweep", "the same again"),
)
"""How the names of our own contestants begin; all others are peers."""
FEW = "With few members or tiny layers, queues and records weigh more than products."
LEAD, ACCELERATOR, MANY = 5.0, 50.0, 30_000
"""Aims for ensembles: so many times faster than vmapped diffrax on a CPU, and than that CPU on an accelerator with
`MANY` members."""
GRADIENTS = 10.0
"""Aim at stiff ends: so many times fewer gradients than the best explicit peer."""
WORKLOADS = {
    "first_answer": "First answers: fresh processes, nothing compiled",
    "completion": "Matrix completion over 20 seeds: 100 x 100, rank 5, depths 2 to 4",
    "ensemble": "Ensembles of many small networks",
    "exact": "Closed forms: phase maps of four million points, trajectories",
    "distances": "Geodesic distances of many pairs",
    "recurrent": "Linear recurrent networks of 200 states",
    "saddles": "From saddle to saddle near the origin",
    "sparse": "Large sparse problems",
    "cluster": "Sweeps on several workers",
    "flow": "One small gradient flow to a stated end error",
    "landscape": "Learning times beside saddles",
    "geometry": "Flow of an end-to-end matrix, in several coordinates",
    "identification": "Identification of linear systems",
    "imputation": "Completion of real matrices",
    "large": "Experiments at a size for an accelerator",
}
"""Results in the order of the page, by the names of their scripts."""
HEAD = """# Performance

Every workload stands beside the solvers one would use instead, run side by side on one machine to a stated error at
the end; ensembles at equal tolerances, with the errors told. This page is made from the stored results by
`python benchmarks/page.py`; `python benchmarks/NAME.py` measures a workload anew, `--show` prints all that is stored,
and the head of each script says what is fair and what is left out.

Times are those of warm, compiled runs as ratios to ours: above 1 the peer takes longer; only the first section has
seconds, those of a first answer. Short runs are medians of
three, ± half of their spread; runs of more than some seconds are timed once and have no ±. `~` is scaled from a part,
`>` was stopped before its end, so that it takes at least so much. A gradient is one evaluation of the right-hand side,
and a Hessian product counts as two.

The aims: ahead of every peer that reaches the stated error; ten times fewer gradients than the best explicit peer where
the end is stiff; five times ahead of vmapped diffrax on ensembles of a thousand and more on a CPU; on an accelerator,
50 times our own time on two cores with 30,000 members. Every case says whether its aims are met, by how much they are
missed, and why where that is known."""


def is_ours(name: str) -> bool:
    """Whether a contestant is of this package."""
    return name.startswith(OURS)


def of_ensemble(record: dict[str, Any]) -> dict[str, Any]:
    """A record of `ensemble.py` as a case."""
    rows = []
    for name, entry in record["contestants"].items():
        numbers = {key: entry[key] for key in ("spread", "repeats", "scaled") if key in entry}
        found = {"contestant": name, "seconds": entry["seconds"], **numbers, "note": entry.get("note", "")}
        found |= {"evaluations": entry.get("evaluations_median"), "error": entry.get("drift_max")}
        rows.append(found | {"kind": "descent" if name == "descent" else "explicit"})
    return {
        "name": f"{record['members']} networks, width {record['width']}, depth {record['depth']}",
        "about": "Each to a loss of 1e-10.",
        "measure": "largest drift of what the flow conserves.",
        "machine": record["machine"],
        "members": record["members"],
        "why": FEW,
        "rows": rows,
    }


def cases_of(stored: Any) -> list[dict[str, Any]] | None:
    """Cases of a file of results; `None` if it has a form of its own."""
    if isinstance(stored, list):
        return [of_ensemble(one) for one in stored] if all("contestants" in one for one in stored) else None
    cases = stored.get("cases")
    if not isinstance(cases, list) or not all("rows" in one for one in cases):
        return None
    return cases


def reached(row: dict[str, Any], case: dict[str, Any]) -> bool:
    """Whether a contestant ended within what the case asks for, as far as that is known."""
    return "within" not in case or row["error"] is None or row["error"] <= case["within"]


def ratio(row: dict[str, Any], ours: dict[str, Any], key: str = "seconds") -> float | None:
    """Of a contestant to ours."""
    value, of = row.get(key), ours.get(key)
    return None if value is None or not of else value / of


def number(value: float) -> str:
    """Three digits, and no more than needed above 100."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def told(row: dict[str, Any], value: float | None, spread: float | None = None, part: str = "scaled") -> str | None:
    """A ratio with its mark and spread; `part` is the key of what is scaled."""
    if value is None:
        return None
    mark = "> " if "at_least" in row else "~ " if part in row else ""
    return mark + number(value) + (f" ± {number(spread)}" if spread else "")


def rows_of(case: dict[str, Any]) -> str:
    """The table of a case."""
    ours, body = case["rows"][0], []
    for row in case["rows"]:
        half = 0.5 * row["spread"] / ours["seconds"] if row.get("spread") and ours["seconds"] else None
        cells = [row["contestant"], told(row, ratio(row, ours), half)]
        cells.append(told(row, ratio(row, ours, "evaluations"), part="estimated"))
        body.append([*cells, None if row["error"] is None else f"{row['error']:.1e}", row["note"]])
    return table(["contestant", "time / ours", "gradients / ours", "error", "note"], body)


def ahead(case: dict[str, Any]) -> bool | None:
    """Whether ours reached the error and no peer that did was faster; `None` without peers or if one was stopped."""
    values = [value for _, value in rivals(case)]
    if values and not reached(case["rows"][0], case):
        return False
    if not values or (min(values) >= 1 and undecided(case)):
        return None
    return min(values) >= 1


def undecided(case: dict[str, Any]) -> list[str]:
    """Peers that were stopped before it was clear whether they are faster."""
    found = []
    for row in case["rows"][1:]:
        value = ratio(row, case["rows"][0])
        if "at_least" in row and value is not None and value < 1 and not is_ours(row["contestant"]):
            found.append(row["contestant"])
    return found


def rivals(case: dict[str, Any]) -> list[tuple[dict[str, Any], float]]:
    """Peers that reached the error, with their ratios of time; bounds below 1 tell nothing and are left out."""
    found = []
    for row in case["rows"][1:]:
        value = ratio(row, case["rows"][0])
        if value is None or is_ours(row["contestant"]) or row.get("kind") == "descent" or not reached(row, case):
            continue
        if "at_least" not in row or value >= 1:
            found.append((row, value))
    return found


def on_time(case: dict[str, Any]) -> list[str]:
    """Sentences on the aim of being ahead."""
    found, ours = rivals(case), case["rows"][0]
    if not reached(ours, case):
        return [f"Ours ends {number(ours['error'] / case['within'])} times above the error that is asked for."]
    if not found:
        peers = [row for row in case["rows"][1:] if not is_ours(row["contestant"])]
        return ["No peer reached the error." if peers else "No peer took part."]
    faster = sorted((one for one in found if one[1] < 1), key=lambda one: one[1])
    if not faster:
        row, value = min(found, key=lambda one: one[1])
        least = "at least " if "at_least" in row else "about " if "scaled" in row else ""
        ended = any(one["error"] is not None for one, _ in found)
        came = "that came to its end" if ended else "that came far enough to compare"
        whom = f"every peer {came}" if undecided(case) else "every peer"
        return [f"Ahead of {whom}: the nearest, {row['contestant']}, takes {least}{number(value)} times as long."]
    names = ", ".join(f"{row['contestant']} ({number(value)} of our time)" for row, value in faster)
    sentences = [f"Behind {names}: the aim is missed by a factor of {number(1 / faster[0][1])}."]
    if case.get("why"):
        sentences.append(f"Likely reason: {case['why']}")
    return sentences


def on_ensembles(case: dict[str, Any]) -> list[str]:
    """A sentence on the aim of being well ahead of a vmapped solver on a CPU."""
    found = [row for row in case["rows"] if row["contestant"] == "diffrax"]
    if case.get("members", 0) < 1000 or case["machine"]["device"] != "cpu" or not found:
        return []
    value = ratio(found[0], case["rows"][0])
    if value is None:
        return []
    aim = "met" if value >= LEAD else f"missed by a factor of {number(LEAD / value)}"
    return [f"The aim of {LEAD:g} times ahead of vmapped diffrax is {aim}."]


def on_gradients(case: dict[str, Any]) -> list[str]:
    """Sentences on the aim on gradients, where it applies."""
    if not case.get("stiff"):
        return []
    ours, sentences = case["rows"][0], []
    for kind, word in (("explicit", "explicit"), ("implicit", "implicit")):
        rows = [row for row in case["rows"][1:] if row.get("kind") == kind and reached(row, case)]
        counts = [(value, row) for row in rows if (value := ratio(row, ours, "evaluations")) and "at_least" not in row]
        if not counts:
            continue
        value, row = min(counts, key=lambda one: one[0])
        text = f"The best {word} peer, {row['contestant']}, needs {number(value)} times our gradients"
        if kind == "explicit":
            aim = "met" if value >= GRADIENTS else f"missed by a factor of {number(GRADIENTS / value)}"
            text += f": the aim of {GRADIENTS:g} is {aim}"
        sentences.append(text + ".")
    return sentences


def on_others(case: dict[str, Any]) -> list[str]:
    """Sentences on who is shown and not counted."""
    sentences = []
    for row in case["rows"][1:]:
        value, name = ratio(row, case["rows"][0]), row["contestant"]
        if value is None or is_ours(name):
            continue
        if row.get("kind") == "descent":
            known = row["error"] is not None and row["error"] == row["error"]
            error = "" if not known else f", at an error of {row['error']:.1e}"
            sentences.append(f"Descent, which does not follow the flow, takes {told(row, value)} times as long{error}.")
        elif not reached(row, case):
            sentences.append(f"{name} did not reach the error and is not counted.")
        elif "at_least" in row and value < 1:
            sentences.append(f"{name} was stopped too early to compare.")
    return sentences


def devices(files: Sequence[tuple[str, list[dict[str, Any]]]]) -> list[str]:
    """Our times on all devices side by side, as ratios to the first; the aim of accelerators."""
    ours = {device: {case["name"]: case for case in cases if case["rows"][0]["seconds"]} for device, cases in files}
    first, *others = ours or {"": {}}
    shared = [case for case in ours.get(first, {}) if any(case in ours[other] for other in others)]
    parts = []
    if shared:
        body = [[case, *(times_as_fast(ours[one].get(case), ours[first][case]) for one in others)] for case in shared]
        parts = [f"How many times faster ours is than on {first}:", table(["case", *others], body)]
    for other in (one for one in others if "cpu" not in one):
        for name, case in ours[other].items():
            if case.get("members", 0) >= MANY:
                parts += on_accelerator(case, other, [found[name] for found in ours.values() if name in found])
    return parts


def times_as_fast(case: dict[str, Any] | None, base: dict[str, Any]) -> str | None:
    """How many times as fast ours is in a case as in another."""
    return number(base["rows"][0]["seconds"] / case["rows"][0]["seconds"]) if case else None


def on_accelerator(case: dict[str, Any], device: str, everywhere: Sequence[dict[str, Any]]) -> list[str]:
    """Sentence on an ensemble beside two cores, those of the accelerator's own machine where these were measured."""
    two = [one for one in everywhere if one["machine"]["device"] == "cpu" and one["machine"]["cores"] == 2]
    two.sort(key=lambda one: one["machine"]["processor"] != case["machine"]["processor"])
    if not two:
        return []
    value = two[0]["rows"][0]["seconds"] / case["rows"][0]["seconds"]
    text = (
        f"{case['name']}, on {device}: {number(value)} times faster than two cores ({two[0]['machine']['processor']})"
    )
    if value >= ACCELERATOR:
        return [f"{text}; the aim of {ACCELERATOR:g} times is met."]
    why = "Likely reason: the products are so small that starting them and moving their numbers takes longer."
    return [f"{text}; the aim of {ACCELERATOR:g} times is missed by a factor of {number(ACCELERATOR / value)}. {why}"]


def stored_files(name: str) -> list[tuple[str, Any]]:
    """Devices with what is stored for them, the processor first."""
    names = [other for other in WORKLOADS if other.startswith(f"{name}-")]
    paths = [path for path in RESULTS.glob(f"{name}-*.json") if not any(path.name.startswith(other) for other in names)]
    found = [(path.stem.removeprefix(f"{name}-"), json.loads(path.read_text(encoding="utf-8"))) for path in paths]
    return sorted(found, key=lambda one: (one[0] != "cpu", one[0]))


def section(name: str, title: str) -> list[str]:
    """One workload."""
    parts = [f"## {title}", f"`benchmarks/{name}.py`"]
    files = []
    for device, stored in stored_files(name):
        if name == "first_answer":
            parts += [f"### On {device}", *answers(stored)]
            continue
        cases = cases_of(stored)
        if cases is None:
            parts.append(f"On {device}: stored in a form of its own, `python benchmarks/{name}.py --show`.")
        elif cases:
            files.append((device, cases))
    if not files and len(parts) == 2:
        return [*parts, "There are no stored results."]
    for device, cases in files:
        judged = [found for case in cases if (found := ahead(case)) is not None]
        parts.append(f"### On {device}")
        machines = sorted({describe(case["machine"]) for case in cases})  # they begin with their dates
        parts.append(f"{machines[0]}." if len(machines) == 1 else f"First {machines[0]}; last {machines[-1]}.")
        if judged:
            text = f"Ahead of every peer in {sum(judged)} of {len(judged)} cases"
            early = sum(ahead(case) is None and bool(undecided(case)) for case in cases)
            parts.append(text + (f"; {early} more cannot be judged, as a peer was stopped." if early else "."))
        for case in cases:
            parts.append(f"**{case['name']}.** {case['about']} Error: {case['measure']}")
            parts.append(rows_of(case))
            parts.append(" ".join([*on_time(case), *on_ensembles(case), *on_gradients(case), *on_others(case)]))
    return parts + devices(files)


def summary() -> str:
    """All workloads and devices in one table."""
    body = []
    for name in WORKLOADS:
        for device, stored in stored_files(name):
            judged = [found for case in cases_of(stored) or [] if (found := ahead(case)) is not None]
            if judged:
                body.append([name, device, f"{sum(judged)} of {len(judged)}"])
    return table(["workload", "device", "ahead of every peer in"], body)


def page() -> str:
    """The whole page."""
    parts = [HEAD, summary()]
    for name, title in WORKLOADS.items():
        parts += section(name, title)
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
