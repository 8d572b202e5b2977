#!/usr/bin/env python
"""Plant errors in the numerical layers, one at a time, and see whether the tests that run them fail.

    python tools/mutants.py map  --map FILE [--jobs N] [--tests tests/exact ...]
    python tools/mutants.py run  --map FILE --out FILE --count 300 --seed 0 [--jobs N] [--limit-minutes M]
    python tools/mutants.py show FILE

`map` runs the tests once on a copy of the tree that counts the statements of functions, and notes for each test which
it ran, how long it took and whether it passed. `run` makes the map if there is none, draws mutants (see
tools/mutant_sites.py) and runs the tests that cover each, nearest first, until one fails. Both write their file after
each step and go on where they stopped; `--limit-minutes` stops them. Tests that fail without an error are left out.
At the end of `run` the tests that caught mutants are run on the unchanged tree: a catch by a test that fails there is
taken back.

Needs Linux, and what the tests need, on PYTHONPATH; every test session is a fork of this process, which has imported
JAX already. `mutants_equivalent.json` beside this file names mutants that change nothing, each with the reason.
"""

import argparse
import difflib
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutant_sessions import Chooser, Outcome, Request, drive, prepare, unpacked
from mutant_sites import LAYERS, LEFT_OUT, Mutant, counted, lines_with, mutants

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.json")
COPIED = (
    "src",
    "tests",
    "book",
    "benchmarks",
    "docs",
    "examples",
    "tools",
    "pyproject.toml",
    "mkdocs.yml",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "Makefile",
    "constraints.txt",
)
TESTS = (*LAYERS, "laws", "cross", "following", "estimators", "theory")
NEAR = 4  # files that are tried first
SLACK = 60.0  # seconds a session may take beyond `PATIENCE` times what its tests took
PATIENCE = 8.0


# --------------------------------------------------------------------------------------------------- trees and files


def sources(root: Path) -> dict[str, str]:
    """Text of every file in which errors are planted."""
    found = {}
    for layer in LAYERS:
        for path in sorted((root / "src" / "deeplinear" / layer).glob("*.py")):
            if f"{layer}/{path.name}" not in LEFT_OUT:
                found[str(path.relative_to(root))] = path.read_text()
    return found


def copy_tree(source: Path, goal: Path) -> Path:
    if goal.exists():
        shutil.rmtree(goal)
    goal.mkdir(parents=True)
    for name in COPIED:
        if (source / name).is_dir():
            shutil.copytree(source / name, goal / name)
        elif (source / name).exists():
            shutil.copy2(source / name, goal / name)
    return goal


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(content, indent=1))
    part.replace(path)


def fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# --------------------------------------------------------------------------------------------------------------- map


def statements(texts: dict[str, str]) -> tuple[list[tuple[str, int]], dict[str, str]]:
    """File and line of every counted statement, and the files with the counting in them."""
    numbered: list[tuple[str, int]] = []
    numbers: dict[tuple[str, int], int] = {}
    changed = {}
    for path, text in texts.items():

        def number(line: int, path: str = path) -> int:
            if (path, line) not in numbers:
                numbers[path, line] = len(numbered)
                numbered.append((path, line))
            return numbers[path, line]

        changed[path] = counted(text, number)
    return numbered, changed


def make_map(options: argparse.Namespace, stop: float) -> bool:
    """Run the tests on a counting copy; whether all were run."""
    texts = sources(ROOT)
    numbered, changed = statements(texts)
    tests = [ROOT / t for t in options.tests] if options.tests else [ROOT / "tests" / t for t in TESTS]
    files = sorted({str(p.relative_to(ROOT)) for t in tests for p in ([t] if t.suffix else t.glob("test_*.py"))})
    made: dict[str, Any] = {
        "prints": {p: fingerprint(t) for p, t in texts.items()},
        "statements": numbered,
        "files": {},
    }
    if options.map.exists():
        before = json.loads(options.map.read_text())
        if before["prints"] == made["prints"]:
            same = {f: r for f, r in before["files"].items() if (ROOT / f).exists() and r["ended"] in ("", "timed out")}
            made["files"] = {f: r for f, r in same.items() if r["print"] == fingerprint((ROOT / f).read_text())}
    left = [f for f in files if f not in made["files"]]
    if not left:
        return True
    tree = copy_tree(ROOT, options.work / "counted")
    for path, text in changed.items():
        (tree / path).write_text(text)
    (tree / "src" / "deeplinear_hits.py").write_text("HITS = set()\nhit = HITS.add\n")

    def look(file: str) -> Callable[[int], Generator[Request, Outcome, Any]]:
        def work(slot: int) -> Generator[Request, Outcome, Any]:
            return file, (yield Request(tree, [file], "record", options.longest))

        return work

    left.sort(key=lambda f: -(ROOT / f).stat().st_size)
    for file, outcome in drive(map(look, left), options.jobs, stop, options.work / "logs", options.memory):
        made["files"][file] = {
            "print": fingerprint((ROOT / file).read_text()),
            "ended": outcome.ended,
            "tests": outcome.tests,
        }
        write(options.map, made)
        failed = [n for n, t in outcome.tests.items() if t["failed"] or "hits" not in t]
        note = outcome.ended or (f"{len(failed)} fail: {failed[:3]}" if failed else f"code {outcome.code}")
        print(f"[{len(made['files'])}/{len(files)}] {file}: {len(outcome.tests)} tests, {note}", flush=True)
    return len(made["files"]) == len(files)


@dataclass
class Covering:
    """Which tests ran which statements."""

    seconds: dict[str, float]
    steady: dict[str, list[str]]  # the tests of each file that pass
    by_line: dict[tuple[str, int], list[str]]
    old: set[str]  # files that changed since

    @classmethod
    def read(cls, path: Path, texts: dict[str, str]) -> "Covering":
        made = json.loads(path.read_text())
        numbered = [tuple(s) for s in made["statements"]]
        covering = cls({}, {}, {}, {p for p, t in texts.items() if made["prints"].get(p) != fingerprint(t)})
        for file, record in made["files"].items():
            covering.steady[file] = []
            for name, test in record["tests"].items():
                if test["failed"] or "hits" not in test or record["ended"]:
                    continue
                covering.steady[file].append(name)
                covering.seconds[name] = test["seconds"]
                for number in unpacked(test["hits"]):
                    covering.by_line.setdefault(numbered[number], []).append(name)
        return covering

    def of(self, mutant: Mutant, texts: dict[str, str]) -> list[str]:
        """The tests that run the statement of a mutant; outside functions, those that run what uses its names."""
        if mutant.line and mutant.path not in self.old:
            return self.by_line.get((mutant.path, mutant.line), [])
        names = set(mutant.names) if not mutant.line else {mutant.scope.split(".")[-1]}
        lines = {
            (p, n)
            for p, t in texts.items()
            if p == mutant.path or any(k in t for k in names)
            for n in lines_with(t, names)
        }
        found = {name for line in lines for name in self.by_line.get(line, [])}
        if not found or mutant.path in self.old:
            found |= {name for (p, _), tests in self.by_line.items() if p == mutant.path for name in tests}
        return sorted(found)


# --------------------------------------------------------------------------------------------------------------- run


def stages(mutant: Mutant, covering: Covering, texts: dict[str, str], budget: float) -> tuple[list[list[str]], int]:
    """Tests in the order they are tried, and how many are left out for want of time.

    First what covers the mutant in the nearest files, then the other tests of these (a compiled function runs its
    statements only once in a process, so a later test that depends on them was not seen to), then the same of the rest.
    """
    covers = covering.of(mutant, texts)
    layer, stem = Path(mutant.path).parent.name, Path(mutant.path).stem.strip("_")

    def order(file: str) -> tuple[int, float]:
        path = Path(file)
        near = (
            0 if path.stem == f"test_{stem}" else 1 if path.parent.name == layer else 3 if "theory" in path.parts else 2
        )
        return near, sum(covering.seconds[n] for n in covers if n.startswith(file + "::"))

    files = sorted({n.split("::")[0] for n in covers}, key=order)
    seen, planned, dropped = set(covers), [], 0
    for group in (files[:NEAR], files[NEAR:]):
        direct = [n for f in group for n in covers if n.startswith(f + "::")]
        others = [n for f in group for n in covering.steady[f] if n not in seen]
        for tests in (direct, others):
            kept, spent = [], 0.0
            for name in tests:
                if spent + covering.seconds[name] <= budget or not kept:
                    kept.append(name)
                    spent += covering.seconds[name]
            dropped += len(tests) - len(kept)
            if kept:
                planned.append(kept)
    return planned, dropped


def slot_tree(options: argparse.Namespace, slot: int) -> Path:
    """The copy of the tree in which this slot plants its mutants; what was compiled of the first is copied too."""
    tree = options.work / f"tree{slot}"
    return tree if tree.exists() else copy_tree(options.work / "clean", tree)


def examine(mutant: Mutant, number: int, options: argparse.Namespace, covering: Covering, texts: dict[str, str]) -> Any:
    """The work on one mutant: plant, try stage after stage, take out."""

    def work(slot: int) -> Generator[Request, Outcome, Any]:
        planned, dropped = stages(mutant, covering, texts, options.budget)
        planted = mutant.plant(texts[mutant.path])
        shown = difflib.unified_diff(
            texts[mutant.path].splitlines(), planted.splitlines(), mutant.path, "mutant", lineterm="", n=1
        )
        record = {"path": mutant.path, "scope": mutant.scope, "line": mutant.line, "operator": mutant.operator,
                  "diff": list(shown)[2:], "tests": sum(map(len, planned)), "left_out": dropped, "verdict": "survived",
                  "by": "", "message": "" if planned else "no test runs it"}  # fmt: skip
        started = time.monotonic()
        tree = slot_tree(options, slot)
        clean = options.work / "clean" / mutant.path
        (tree / mutant.path).write_text(planted)
        os.utime(tree / mutant.path, (1e9 + number, 1e9 + number))  # no compiled file of another mutant is taken for it
        try:
            for tests in planned:
                files = list(dict.fromkeys(n.split("::")[0] for n in tests))
                limit = SLACK + PATIENCE * sum(covering.seconds[n] for n in tests)
                outcome = yield Request(tree, ["-x", *files], Chooser(tests), limit)
                if outcome.ended == "timed out":
                    record |= {"verdict": "timed out", "by": files[0]}
                elif outcome.ended:
                    record |= {"verdict": "caught", "by": files[0], "message": outcome.ended}
                elif outcome.failed or outcome.code not in (0, 5):
                    record |= {"verdict": "caught", "by": outcome.failed, "message": outcome.message}
                if record["verdict"] != "survived":
                    break
        finally:
            shutil.copy2(clean, tree / mutant.path)
        return mutant.name, record | {"seconds": round(time.monotonic() - started, 1)}

    return work


def run(options: argparse.Namespace) -> int:
    stop = time.monotonic() + 60 * options.limit_minutes
    prepare(options.work)
    if not make_map(options, stop):
        print("The map is not complete yet; the same command goes on with it.")
        return 3
    texts = sources(ROOT)
    covering = Covering.read(options.map, texts)
    drawn = mutants(texts, options.count, options.seed)
    if options.only:
        drawn = [m for m in drawn if options.only in m.name]
    known = json.loads(options.out.read_text())["mutants"] if options.out.exists() else {}
    for mutant in drawn:
        if mutant.name in known and known[mutant.name]["verdict"] in options.again:
            del known[mutant.name]
    left = [(i, m) for i, m in enumerate(drawn) if m.name not in known]
    if left:
        warm(options, covering, stop)
    for name, record in drive(
        (examine(m, i, options, covering, texts) for i, m in left),
        options.jobs,
        stop,
        options.work / "logs",
        options.memory,
    ):
        known[name] = record
        write(options.out, {"seed": options.seed, "count": options.count, "mutants": known})
        print(
            f"[{len(known)}/{len(drawn)}] {record['verdict']} {record['seconds']} s  {name}  {record['by']}", flush=True
        )
    if any(m.name not in known for m in drawn):
        print("Not all mutants were tried; the same command goes on.")
        return 3
    complete = confirm(options, known, stop)
    write(options.out, {"seed": options.seed, "count": options.count, "mutants": known})
    show(options.out)
    return 0 if complete else 3


def warm(options: argparse.Namespace, covering: Covering, stop: float) -> None:
    """A clean copy in which every module has been read once, so that the trees copied from it need not compile them."""
    tree = copy_tree(ROOT, options.work / "clean")
    for old in options.work.glob("tree*"):
        shutil.rmtree(old)

    def work(slot: int) -> Generator[Request, Outcome, Any]:
        return (yield Request(tree, ["--collect-only", *covering.steady], Chooser([]), 600.0))

    list(drive([work], 1, stop, options.work / "logs", options.memory))


def confirm(options: argparse.Namespace, known: dict[str, Any], stop: float) -> bool:
    """Run what caught a mutant on the clean tree; take back what fails there. Whether all could be run."""
    by_file: dict[str, list[str]] = {}
    for record in known.values():
        if record["verdict"] == "caught" and "::" in record["by"] and not record.get("confirmed"):
            by_file.setdefault(record["by"].split("::")[0], []).append(record["by"])

    def again(file: str, tests: list[str]) -> Callable[[int], Generator[Request, Outcome, Any]]:
        def work(slot: int) -> Generator[Request, Outcome, Any]:
            bad, left = [], sorted(set(tests))
            while left:
                outcome = yield Request(options.work / "clean", ["-x", file], Chooser(left), options.longest)
                if not outcome.failed and not outcome.ended:
                    break
                bad.append(outcome.failed or left[0])
                left = [n for n in left if n not in bad]
            return tests, bad

        return work

    done = set()
    if by_file and not (options.work / "clean").exists():
        copy_tree(ROOT, options.work / "clean")
    works = [again(f, t) for f, t in by_file.items()]
    for tests, bad in drive(works, options.jobs, stop, options.work / "logs", options.memory):
        done |= set(tests)
        for record in known.values():
            if record["by"] in bad:
                record |= {"verdict": "unsteady", "message": "its test fails on the unchanged tree too"}
            elif record["by"] in tests:
                record["confirmed"] = True
    return done == {name for tests in by_file.values() for name in tests}


def show(path: Path) -> None:
    """Print the numbers of a campaign and the difference of each mutant that no test noticed."""
    known = json.loads(path.read_text())["mutants"]
    reasons = json.loads(EQUIVALENT.read_text()) if EQUIVALENT.exists() else {}
    verdicts = {name: "equivalent" if name in reasons and r["verdict"] == "survived" else r["verdict"]
                for name, r in known.items()}  # fmt: skip
    for name, verdict in sorted(verdicts.items()):
        if verdict in ("survived", "unsteady"):
            record = known[name]
            print(f"\n{verdict}: {name}\n  {record['tests']} tests, {record['left_out']} left out; {record['message']}")
            print("\n".join(f"    {line}" for line in record["diff"]))
    numbers = {
        v: list(verdicts.values()).count(v) for v in ("caught", "timed out", "survived", "unsteady", "equivalent")
    }
    noticed, total = numbers["caught"] + numbers["timed out"], len(verdicts) - numbers["equivalent"]
    print(f"\n{', '.join(f'{v}: {n}' for v, n in numbers.items())}; noticed {noticed} of {total}"
          + (f" ({100 * noticed / total:.1f} %)" if total else ""))  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("map", "run"):
        command = commands.add_parser(name)
        command.add_argument("--map", type=Path, default=ROOT / "build" / "mutants" / "map.json")
        command.add_argument(
            "--work", type=Path, default=ROOT / "build" / "mutants" / "work", help="copies, compiled programs"
        )
        command.add_argument("--jobs", type=int, default=os.cpu_count())
        command.add_argument("--limit-minutes", type=float, default=1e6)
        command.add_argument("--memory", type=float, default=24.0, help="GiB of addresses a session may use")
        command.add_argument(
            "--longest", type=float, default=300.0, help="seconds for one file of tests without an error"
        )
        command.add_argument(
            "--tests", nargs="*", default=[], help="folders or files of tests; by default the layers', laws, theory"
        )
    command.add_argument("--out", type=Path, default=ROOT / "build" / "mutants" / "results.json")
    command.add_argument("--count", type=int, default=300)
    command.add_argument("--seed", type=int, default=0)
    command.add_argument(
        "--budget", type=float, default=90.0, help="seconds of tests in each of four stages for one mutant"
    )
    command.add_argument("--again", nargs="*", default=["unsteady"], help="verdicts to find anew")
    command.add_argument("--only", default="", help="part of the names of the mutants to try")
    commands.add_parser("show").add_argument("file", type=Path)
    options = parser.parse_args()
    if options.command == "show":
        show(options.file)
        return 0
    for name in ("map", "work", "out"):
        if hasattr(options, name):
            setattr(options, name, getattr(options, name).resolve())
    if options.command == "run":
        return run(options)
    prepare(options.work)
    return 0 if make_map(options, time.monotonic() + 60 * options.limit_minutes) else 3


if __name__ == "__main__":
    sys.exit(main())
