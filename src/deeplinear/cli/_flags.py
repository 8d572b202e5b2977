"""Flags that several commands have."""

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on the output stream.")]
Seed = Annotated[str | None, typer.Option("--seed", metavar="N", help="Seed of all randomness (default 0).")]
StoreDir = Annotated[str, typer.Option("--store", metavar="DIR", help="Folder where results live.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that this command did not write.")]
All = Annotated[bool, typer.Option("--all", help="All there are.")]
Paper = Annotated[str | None, typer.Option("--paper", metavar="P", help="Those of one paper, such as completion.")]
Preset = Annotated[str, typer.Option("--preset", metavar="NAME", help="Size: quick, paper or large.")]
PresetOrNone = Annotated[str | None, typer.Option("--preset", metavar="NAME", help="Size: quick, paper or large.")]
Again = Annotated[bool, typer.Option("--again", help="Run also what is stored already.")]
Executor = Annotated[
    str, typer.Option("--executor", metavar="NAME", help="Where work is done: serial, processes or dask.")
]
Workers = Annotated[
    str | None, typer.Option("--workers", metavar="N", help="Number of workers (default: one for each processor).")
]
Address = Annotated[
    str | None,
    typer.Option("--address", metavar="URL", help="Dask scheduler that runs already; without it one is started here."),
]
