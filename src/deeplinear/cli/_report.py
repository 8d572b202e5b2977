"""`dln report`: one page of everything in a store."""

from pathlib import Path

from deeplinear.cli._shell import Code, UsageError, print_json, print_table, to_write
from deeplinear.cli._written import Written


def report_command(store: str, out: str | None, force: bool, as_json: bool) -> Code:
    """Build the page and say where it is."""
    from deeplinear.experiments import Store
    from deeplinear.report import build_report

    if not Path(store).is_dir():
        raise UsageError(f"--store: {store} must be a folder with results, but there is nothing; run something first.")
    target = to_write(str(Path(store) / "report.html") if out is None else out, "--out", ".html", ".htm")
    written = Written("report", [target], force=force)
    try:
        (page,) = written.write(lambda to: [build_report(Store(store), to / target.name)])
    except ValueError as error:
        raise UsageError(str(error)) from None
    if as_json:
        print_json({"ok": True, "command": "report", "file": str(page), "bytes": page.stat().st_size})
    else:
        print_table([("written", str(page)), ("open it", page.resolve().as_uri())])
    return Code.fine
