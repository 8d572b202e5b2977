"""Writes `docs/errata.md` from the registry of errata and from stored numbers of their checks.

    python -m book.errata             # writes the page; the tests compare it with the registry
    python -m book.errata --measure   # first runs the checks that are new or of another version, then writes it

The numbers stand in `book/errata.json`, rounded. For each check that is the instance that misses the printed form most,
among the first `INSTANCES` of seed `SEED`, and what both forms are missed by on it.
"""

import argparse
import collections
import itertools
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from book.results import INSTANCES, SEED
from deeplinear.theory import (
    FAULT,
    SURENESS,
    Check,
    Erratum,
    Evidence,
    Reading,
    Verdict,
    check,
    errata,
    generator,
    papers,
)

PAGE = Path(__file__).parents[1] / "docs" / "errata.md"
NUMBERS = Path(__file__).with_suffix(".json")

TITLES = {
    "completion": "Coupled dynamics and low rank in deep matrix completion",
    "exact": "Exact solutions from lazy to rich learning",
    "network": "Gradient flow in deep linear networks",
    "geometry": "Geodesics and low rank in the deep linear network",
    "rnn": "Low dimensional state spaces with recurrent networks",
}
"""Headings by the short names of the papers."""

STANDING = {
    "completion": r"""The theorems stand, 3.1, 3.3, 4.2 and 4.3 among them: we found no false inequality in them. Lemma
F.3 (E7) needs a hypothesis that holds wherever the paper uses it. Our text of this paper comes from character
recognition, which has < for ≤ and loses squares; single marks in formulas are graded accordingly.""",
    "exact": r"""The main results stand: Lemma 4.1, the solution of eq. 7, Theorems 5.1 and 5.2, and Theorem 4.3 with
E1 to E3. Our text of this paper, too, has lost marks, such as $\lambda_\pm$ for $\lambda_\perp$, and single ones are
graded accordingly. The signs are those of this library, $W_2^\top W_2 - W_1 W_1^\top = \lambda I$,
$s_\lambda = \sqrt{s^2 + \lambda^2/4}$; $\lambda_\perp$ is $-\lambda/2$ for more inputs than outputs and $\lambda/2$
for more outputs.""",
    "network": r"""The results that the survey reviews stand. Propositions 21 (E2), 27 (E3), 3 and 15 (E5) and a
claim of Section 6.2.2 (E11) have counterexamples as printed, and hold with another index or a further hypothesis. The
survey counts layers $W_1, \dots, W_h$ and has $C_i = W_i W_i^\top - W_{i+1}^\top W_{i+1}$, the opposite sign of this
library's conserved quantities; this section is in its signs, with $L$ for $h$. The loss is
$F = \tfrac12\lVert \Sigma - W_{L:1}\rVert^2$, $S$ the set of modes that a critical point has learnt.""",
    "geometry": r"""The geodesic equations, the first part of Theorem 3.4.2, the concavity of the entropy and the
isotropic equilibrium stand, the last with the factor of E5. One theorem does not: the explicit curves of the second
part of Theorem 3.4.2 (E1) are geodesics only where $S$ and $\Sigma$ commute. The signs of the imbalance are opposite to
ours and change no statement. The depth is $L$ here and $N$ in the thesis.""",
    "rnn": r"""The theorems stand: uniqueness with $k > 2\hat d$; extrapolation of students with a small loss, with an
explicit certificate in place of the printed chain of bounds; and balance from near-zero starts. Two figures show more
than our runs do: the steps of Figures 1(a) and 2 (E19, E20). The clock of the paper's Appendix C.4 is that of half the
loss.""",
}
"""What stands of each paper, and the conventions of its list."""

HEAD = """# Errata

Places that are printed wrongly, or are easily read wrongly, in the five papers this library follows. We thank their
authors: nearly all of it is small, and **the main results stand**, one theorem excepted ([E1 of the
thesis](#geometry-e1)), some with a corrected index or factor, or one more hypothesis. In that form they are implemented
here. Whoever builds on a formula of these papers may want to look it up on this page.

Every entry, or erratum, has the place, the printed form, the right form, what a check measures of both, and how sure we
are. The numbers E1, E2, … count within a paper. This page is made by `python -m book.errata` from the registry
`deeplinear.theory.errata()`."""

MEASURED = f"""**Measured** numbers come from checks, which draw random instances, {INSTANCES} of seed {SEED} here, and
measure both forms on each: `dln check run ID` does it again. The page tells the instance on which the printed form is
missed most. A form holds where its number is at most the tolerance, so negative numbers leave room. Where nothing is
said of the printed number it is the quantity named for the right form. A caveat is measured as it may be read.
Checks must also notice planted violations, so that none of them is an empty test."""


def measure(one: Check) -> dict[str, Any]:
    """Both forms on the instance that misses the printed one most."""
    drawn = [one.draw(generator(one.id, SEED, k)) for k in range(INSTANCES)]
    verdicts = one.judge(drawn)
    worst = max(range(INSTANCES), key=lambda k: _excess(verdicts[k]))
    printed = verdicts[worst].printed
    if printed is None or printed.holds or not all(r.holds for v in verdicts for r in v.claim):
        raise RuntimeError(f"{one.id} does not show an erratum: {verdicts[worst].message} Run dln check run {one.id}.")
    return {
        "version": one.version,
        "instance": worst,
        "printed": _number(printed.residual, 2),
        "printed_tolerance": _number(printed.tolerance, 2),
        "parts": [
            {"name": part.name, "right": _number(part.residual, 1), "tolerance": _number(part.tolerance, 2)}
            for part in sorted(verdicts[worst].claim, key=_use, reverse=True)
        ],
    }


def _excess(verdict: Verdict) -> float:
    return -math.inf if verdict.printed is None else verdict.printed.residual


def _use(reading: Reading) -> float:
    """How much of its tolerance a residual uses up."""
    return reading.residual / reading.tolerance if reading.tolerance > 0 else reading.residual - reading.tolerance


def _number(value: float, digits: int) -> str:
    if not math.isfinite(value):
        return "∞"
    return f"{float(f'{value:.{digits}g}') + 0.0:g}"  # + 0.0 turns -0 into 0


def measured(known: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Numbers of all checks of the registry; those that are known of the same version are taken over."""
    found = {}
    for name in checks_of(errata()):
        one = check(name)
        is_known = known.get(name, {}).get("version") == one.version
        found[name] = known[name] if is_known else measure(one)
    return found


def checks_of(entries: Iterable[Erratum]) -> list[str]:
    """Ids of the checks of some errata, each once."""
    return list(dict.fromkeys(one.check for entry in entries for one in entry.evidence))


def anchor(entry: Erratum) -> str:
    """Name of the place on the page that an entry can be linked by."""
    return f"{entry.paper}-e{entry.number}"


def block(entry: Erratum, numbers: dict[str, dict[str, Any]]) -> str:
    """One entry of the page."""
    lines = [
        f'<a id="{anchor(entry)}"></a>**E{entry.number}: {entry.place}** ({entry.kind.name})\n',
        f"- printed: {entry.printed}",
        f"- right: {entry.right}",
        *(f"- measured: {_told(one, numbers[one.check], entry.kind)}" for one in entry.evidence),
        *([f"- no check: {entry.unchecked}"] if entry.unchecked else []),
        *([f"- see also: {entry.also}"] if entry.also else []),
        f"- how sure: **{_grade(entry.sureness)}**; {entry.because}",
    ]
    return "\n".join(lines)


def _told(one: Evidence, number: dict[str, Any], kind: FAULT) -> str:
    what = f"{one.printed}; " if one.printed else ""
    form = "as it may be read" if kind is FAULT.caveat else "printed"
    part = next(part for part in number["parts"] if one.part in ("", part["name"]))
    return (
        f"{form} **{number['printed']}** ({what}tolerance {number['printed_tolerance']}), "
        f"right **{part['right']}** (`{part['name']}`; tolerance {part['tolerance']}), "
        f"instance {number['instance']}: `dln check run {one.check}`"
    )


def _grade(sureness: SURENESS) -> str:
    return "may be the extraction" if sureness is SURENESS.extraction else sureness.name


def page(numbers: dict[str, dict[str, Any]]) -> str:
    """The whole page."""
    parts = [HEAD, _overview(), MEASURED, _claims()]
    for paper in papers():
        parts += [f"## {TITLES[paper]}", STANDING[paper]]
        for section, entries in itertools.groupby(errata(paper), key=lambda entry: entry.section):
            parts += [f"### {section}", *(block(entry, numbers) for entry in entries)]
    return "\n\n".join(parts) + "\n"


def _overview() -> str:
    rows = []
    for paper in papers():
        entries = errata(paper)
        kinds = collections.Counter(entry.kind for entry in entries)
        grades = collections.Counter(entry.sureness for entry in entries)
        amounts = [" / ".join(str(kinds[kind]) for kind in FAULT), " / ".join(str(grades[one]) for one in SURENESS)]
        link = f"[{TITLES[paper]}](#{TITLES[paper].lower().replace(' ', '-')})"
        rows.append(f"| {link} | {len(entries)} | {' | '.join(amounts)} | {len(checks_of(entries))} |")
    heads = " / ".join(kind.name for kind in FAULT), " / ".join(one.name for one in SURENESS)
    table = [f"| paper | entries | {' | '.join(heads)} | checks |", "| --- |" + " ---: |" * 4, *rows]
    kinds_told = [f"- **{kind.name}**: {kind.value}" for kind in FAULT]
    grades_told = [f"- **{_grade(grade)}**: {grade.value}" for grade in SURENESS]
    return "\n".join(
        [
            *table,
            "\nAn entry is a\n",
            *kinds_told,
            "\n**How sure** we are tells whether it is the paper that prints it so. We read texts extracted from the"
            " papers, without their figures. The grade is not about the mathematics, which is measured in all three:\n",
            *grades_told,
        ]
    )


def _claims() -> str:
    lines = ["## Claims that do not hold as printed", "The entries that matter most to whoever uses the results:"]
    for paper in papers():
        links = [f"[E{e.number}](#{anchor(e)}) {e.place}" for e in errata(paper) if e.kind is FAULT.claim]
        lines.append(f"- {TITLES[paper]}: {'; '.join(links)}")
    return "\n\n".join(lines[:2]) + "\n\n" + "\n".join(lines[2:])


def stored() -> dict[str, dict[str, Any]]:
    """The stored numbers."""
    return json.loads(NUMBERS.read_text(encoding="utf-8")) if NUMBERS.exists() else {}


def main() -> None:
    """Write the page, and before that, if asked, the numbers."""
    parser = argparse.ArgumentParser(prog="python -m book.errata", description="Writes docs/errata.md.")
    parser.add_argument("--measure", action="store_true", help="run the checks that are new or of another version")
    if parser.parse_args().measure:
        import jax

        jax.config.update("jax_enable_x64", True)
        text = json.dumps(measured(stored()), indent=1, ensure_ascii=False)
        NUMBERS.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(page(stored()), encoding="utf-8")


if __name__ == "__main__":
    main()
