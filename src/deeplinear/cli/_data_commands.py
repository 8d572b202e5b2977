"""Commands for people with data: what flags they have. They stand beside the others, at the top."""

from typing import Annotated

import typer

from deeplinear.cli._flags import Force, Json, Seed

data = typer.Typer()


@data.command("complete")
def _complete(
    file: Annotated[str, typer.Argument(metavar="DATA", help="Table with gaps (.csv, .tsv, .txt, .npy, .npz).")],
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="FILE", help="Table to write; DATA-completed.csv by default.")
    ] = None,
    depth: Annotated[str | None, typer.Option("--depth", metavar="N", help="Layers, 2 by default.")] = None,
    width: Annotated[str | None, typer.Option("--width", metavar="N", help="Hidden units, 32 by default.")] = None,
    scale: Annotated[
        str | None,
        typer.Option("--scale", metavar="X", help="Size of the start, 0.0001 of the data's spread by default."),
    ] = None,
    offsets: Annotated[
        str | None,
        typer.Option(
            "--offsets", metavar="WHAT", help="auto (default), both, rows, columns, mean or none: taken off before."
        ),
    ] = None,
    scaling: Annotated[
        str | None, typer.Option("--scaling", metavar="WHAT", help="Units: auto (default), columns, one or none.")
    ] = None,
    held_out: Annotated[
        str | None, typer.Option("--held-out", metavar="X", help="Part of the entries that decides where to stop, 0.1.")
    ] = None,
    restarts: Annotated[
        str | None, typer.Option("--restarts", metavar="N", help="Fits to average; their spread is written too.")
    ] = None,
    entries: Annotated[bool, typer.Option("--entries", help="DATA lists row, column, value in three columns.")] = False,
    predict: Annotated[
        str | None, typer.Option("--predict", metavar="FILE", help="With --entries: row, column of what to predict.")
    ] = None,
    header: Annotated[
        bool, typer.Option("--header", help="The first line is a header, also if it is numbers.")
    ] = False,
    index: Annotated[
        bool, typer.Option("--index", help="The first column is names, also if they are numbers.")
    ] = False,
    seed: Seed = None,
    no_plot: Annotated[bool, typer.Option("--no-plot", help="Make no picture.")] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Fill the gaps of a table by a deep linear network, which finds the least rank that fits.

    Cells that are empty, NA or NaN are gaps; a header line and names of rows are kept. A tenth of the entries is held
    out to decide where to stop, and their error is told. Rows and columns that cannot be determined from the rest are
    named.
    """
    from deeplinear.cli._complete import complete_command

    settings = {"depth": depth, "width": width, "scale": scale, "offsets": offsets, "scaling": scaling}
    settings |= {"held_out": held_out, "restarts": restarts, "random_state": "0" if seed is None else seed}
    raise typer.Exit(complete_command(file, out, entries, predict, settings, (header, index), no_plot, force, as_json))


@data.command("identify")
def _identify(
    file: Annotated[
        str, typer.Argument(metavar="DATA", help="Table whose rows are times (.csv, .tsv, .txt, .npy, .npz).")
    ],
    outputs: Annotated[
        str, typer.Option("--outputs", metavar="Y,…", help="Columns of outputs: names, or numbers from 1.")
    ],
    inputs: Annotated[
        str | None,
        typer.Option("--inputs", metavar="U,…", help="Columns of inputs; by default all that are no outputs."),
    ] = None,
    order: Annotated[
        str | None, typer.Option("--order", metavar="N", help="States of the system; found from the data by default.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", metavar="K", help="Lags that the network is trained on (default 20, or fewer)."),
    ] = None,
    states: Annotated[str, typer.Option("--states", metavar="N", help="States of the network.")] = "20",
    steps: Annotated[str, typer.Option("--steps", metavar="N", help="Steps of training, at most.")] = "3000",
    test: Annotated[
        str, typer.Option("--test", metavar="X", help="Part of the rows, at the end, that the fit does not see.")
    ] = "0.2",
    rest: Annotated[bool, typer.Option("--rest", help="The system rests before the first row.")] = False,
    no_feed_through: Annotated[
        bool, typer.Option("--no-feed-through", help="An output does not depend on the input of its own row.")
    ] = False,
    horizon: Annotated[
        str | None, typer.Option("--horizon", metavar="H", help="Entries of the impulse response (default 2 K + 1).")
    ] = None,
    header: Annotated[
        bool, typer.Option("--header", help="The first line is a header, also if it is numbers.")
    ] = False,
    seed: Seed = None,
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="DIR", help="Folder for model, tables, picture.")
    ] = "results",
    no_plot: Annotated[bool, typer.Option("--no-plot", help="Make no picture.")] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Identify a linear system from a table of inputs and outputs, by an over-parameterised recurrent network.

    Says the order, the poles, whether the system is stable, how well it predicts the end of the table, which the fit
    does not see, and what the theorems on extrapolation say. Writes the matrices A, B, C, D (DATA-model.npz, which
    dln extrapolate --student reads if there is one input and one output), the numbers C A^j B (DATA-response.csv),
    measured and predicted outputs, and a picture.
    """
    from deeplinear.cli._identify import identify_command

    flags = (order, memory, states, steps, test, rest, no_feed_through, horizon, header, seed, out, no_plot, force)
    raise typer.Exit(identify_command(file, inputs, outputs, *flags, as_json))


@data.command("regress")
def _regress(
    file: Annotated[str, typer.Argument(metavar="DATA", help="Table, with a header line (.csv, .tsv, .txt).")],
    targets: Annotated[
        str, typer.Option("--targets", metavar="NAME,...", help="Columns to predict, by name or number (from 1 on).")
    ],
    features: Annotated[
        str | None,
        typer.Option("--features", metavar="NAME,...", help="Columns to predict from; by default all others."),
    ] = None,
    depth: Annotated[str, typer.Option("--depth", metavar="N", help="Layers.")] = "2",
    width: Annotated[
        str | None,
        typer.Option("--width", metavar="N", help="Hidden units; fewer than features and targets bound the rank."),
    ] = None,
    scale: Annotated[
        str, typer.Option("--scale", metavar="X", help="Strength of the modes at the start; the strongest is about 1.")
    ] = "1e-3",
    method: Annotated[str, typer.Option("--method", metavar="NAME", help="auto, flow or closed-form.")] = "auto",
    whiten: Annotated[bool, typer.Option("--whiten", help="Learn from whitened features.")] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Leave columns in their units; by default each is divided by its spread.")
    ] = False,
    held_out: Annotated[
        str, typer.Option("--held-out", metavar="X", help="Part of the rows that decides when to stop; 0 for none.")
    ] = "0.2",
    folds: Annotated[
        str, typer.Option("--folds", metavar="N", help="How often rows are held out, others each time.")
    ] = "5",
    time: Annotated[
        str | None, typer.Option("--time", metavar="T", help="Where the path ends; by default at least squares.")
    ] = None,
    predict: Annotated[
        str | None, typer.Option("--predict", metavar="FILE", help="Another table, whose targets are predicted.")
    ] = None,
    header: Annotated[
        bool, typer.Option("--header", help="The first line is a header, also if it is numbers.")
    ] = False,
    seed: Seed = None,
    out: Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Folder for model and pictures.")] = "results",
    no_plot: Annotated[bool, typer.Option("--no-plot", help="Make no picture.")] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Predict columns of a table from others by a deep linear network, stopped where rows held out are predicted best.

    Says which modes (singular values of the product) were learnt when, and R² on the rows held out. Writes the layers
    W1, W2, … as they learnt (layers.npz, for dln diagnose; of columns divided by their spreads, unless --raw),
    coefficients for the columns as they are (coefficients.csv), the whole path (regression.npz), a picture, and
    predictions.csv.
    """
    from deeplinear.cli._regress import regress_command

    raise typer.Exit(
        regress_command(
            *(file, targets, features, depth, width, scale, method, whiten, raw, held_out, folds, time, seed, predict),
            *(header, out, no_plot, force, as_json),
        )
    )  # fmt: skip


@data.command("diagnose")
def _diagnose(
    file: Annotated[str, typer.Argument(metavar="WEIGHTS", help="Weights: .npz, .npy, .safetensors, .pt or .pth.")],
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="FILE", help="An .npz with target, target and mask, or inputs and outputs."),
    ] = None,
    target: Annotated[str | None, typer.Option("--target", metavar="FILE", help="Target matrix, (out, in).")] = None,
    mask: Annotated[
        str | None, typer.Option("--mask", metavar="FILE", help="Zeros and ones, one where the target is observed.")
    ] = None,
    inputs: Annotated[str | None, typer.Option("--inputs", metavar="FILE", help="Inputs, (in, samples).")] = None,
    outputs: Annotated[str | None, typer.Option("--outputs", metavar="FILE", help="Outputs, (out, samples).")] = None,
    rows: Annotated[bool, typer.Option("--rows", help="Samples are the rows of inputs and outputs.")] = False,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="Take only arrays whose names begin with this.")
    ] = "",
    names: Annotated[
        str | None, typer.Option("--names", metavar="A,B,…", help="Take these arrays, first-acting first.")
    ] = None,
    transpose: Annotated[bool, typer.Option("--transpose", help="The arrays are stored as (in, out).")] = False,
    heads: Annotated[str, typer.Option("--heads", metavar="N", help="Attention heads in q_proj and k_proj.")] = "1",
    head: Annotated[str, typer.Option("--head", metavar="N", help="Which of them to take, from 0.")] = "0",
    simulate: Annotated[bool, typer.Option("--simulate", help="Compute the flow and compare the predictions.")] = False,
    claims: Annotated[
        bool, typer.Option("--claims", help="Measure also what the theorems that apply claim; takes minutes.")
    ] = False,
    no_theorems: Annotated[bool, typer.Option("--no-theorems", help="Leave the list of theorems out.")] = False,
    max_steps: Annotated[
        str, typer.Option("--max-steps", metavar="N", help="Most steps of the simulated flow.")
    ] = "20000",
    page: Annotated[str | None, typer.Option("--html", metavar="FILE", help="Write the diagnosis as a page.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Say what theory says about a network of your own: which hypotheses hold, and what follows.

    Weights are read from a file: layers of a linear network in the order in which they act, or a pair q_proj and k_proj
    or lora_A and lora_B. Without a task only the weights are spoken of: balance, ranks, conditioning. With a task come
    convergence, obstructions, rates, learning times, saddles, step size. Predictions are about gradient flow and are
    made only where their hypotheses hold. Exit 1 if one differs from the simulated run, 3 if that run breaks down.
    """
    from deeplinear.cli._diagnose import diagnose_command

    raise typer.Exit(
        diagnose_command(
            file,
            data,
            target,
            mask,
            inputs,
            outputs,
            rows,
            prefix,
            names,
            transpose,
            heads,
            head,
            simulate,
            claims,
            no_theorems,
            max_steps,
            page,
            force,
            as_json,
        )
    )


@data.command("ranks")
def _ranks(
    file: Annotated[str, typer.Argument(metavar="WEIGHTS", help="Weights: .npz, .npy, .safetensors, .pt or .pth.")],
    initial: Annotated[
        str | None, typer.Option("--initial", metavar="FILE", help="The same network before training, to compare.")
    ] = None,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="Take only arrays whose names begin with this.")
    ] = "",
    skip: Annotated[
        list[str] | None, typer.Option("--skip", metavar="NAME", help="An array to leave out; may be repeated.")
    ] = None,
    first: Annotated[
        str | None, typer.Option("--first", metavar="NAME", help="The layer that acts first, if not the first array.")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--last", metavar="NAME", help="The layer that acts last, if not the last array.")
    ] = None,
    layout: Annotated[
        str, typer.Option("--layout", metavar="AXES", help="Order of the axes of kernels: OIHW (PyTorch) or HWIO.")
    ] = "OIHW",
    as_json: Json = False,
) -> None:
    """Measure effective and stable rank of every layer of a saved network, of any kind.

    Matrices and kernels are measured, a kernel as the matrix of its input channels against all the rest. Averages over
    all layers but the last, over the layers between first and last, and over layers of one shape are told beside each
    other, since the first two change with the mix of shapes alone.
    """
    from deeplinear.cli._ranks import ranks_command

    raise typer.Exit(ranks_command(file, initial, prefix, tuple(skip or ()), first, last, layout, as_json))
