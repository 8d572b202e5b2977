"""The settings of a run as one table, from which both the flags and the keys of a TOML file are made."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from deeplinear._about import near_name, read_float, read_int
from deeplinear.cli._limits import LAYERS, POINTS, STEPS, TIME, WIDTH
from deeplinear.cli._shell import UsageError

SHOWN = 200
"""Characters of a wrong value that are shown."""

# --- Kinds of values: each reads the text of a flag as well as a value of a TOML file ---------------------------------


@dataclass(frozen=True)
class Kind:
    """How a value is read. `read` raises `ValueError` for anything that is not what `wanted` says."""

    wanted: str
    metavar: str
    read: Callable[[Any], Any]
    options: tuple[str, ...] = ()


def _bounds(above: float | None, at_least: float | None, at_most: float | None) -> str:
    parts = [
        "" if above is None else f"greater than {above:g}",
        "" if at_least is None else f"of at least {at_least:g}",
        "" if at_most is None else f"at most {at_most:g}",
    ]
    return " and ".join(part for part in parts if part)


def number(
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    infinite: bool = False,
) -> Kind:
    """A real number within bounds."""

    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        result = read_float(value) if isinstance(value, str) else float(value)
        low = (above is not None and not result > above) or (at_least is not None and not result >= at_least)
        if low or (at_most is not None and not result <= at_most) or math.isnan(result):
            raise ValueError
        if math.isinf(result) and not infinite:
            raise ValueError
        return result

    text = f"a {'' if infinite else 'finite '}number {_bounds(above, at_least, at_most)}".strip()
    return Kind(text, "NUMBER", read)


def count(*, at_least: int = 1, at_most: int = 2**63 - 1) -> Kind:
    """A whole number within bounds; `1e6` is one too."""

    def read(value: Any) -> int:
        if isinstance(value, str):
            try:
                value = read_int(value)
            except ValueError:
                value = read_float(value)
                value = int(value) if value.is_integer() else value
        if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value <= at_most:
            raise ValueError
        return value

    top = f" and at most {at_most}" if at_most < 2**63 - 1 else ""
    return Kind(f"a whole number of at least {at_least}{top}", "N", read)


def listed(item: Kind, example: str, at_most: int = 10_000) -> Kind:
    """One or more values, but not too many, separated by commas in a flag, a list in a file."""

    def read(value: Any) -> tuple[Any, ...]:
        parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
        if not isinstance(parts, list) or not 1 <= len(parts) <= at_most:
            raise ValueError
        return tuple(item.read(part) for part in parts)

    return Kind(f"a list of at most {at_most} values such as {example}, each {item.wanted}", f"{item.metavar},…", read)


def text(wanted: str, metavar: str) -> Kind:
    """Any text that is not empty."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            raise ValueError
        return value

    return Kind(wanted, metavar, read)


def choice(*options: str) -> Kind:
    """One of some names; another one is answered with the nearest."""

    def read(value: Any) -> str:
        if value not in options:
            raise ValueError(near_name(str(value), options))
        return str(value)

    return Kind(f"one of {', '.join(options)}", "NAME", read, options)


def switch() -> Kind:
    """Yes or no: a bare flag, `true` or `false` in a file."""

    def read(value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError
        return value

    return Kind("true or false", "", read)


# --- The table --------------------------------------------------------------------------------------------------------

LOSSES = ("squared", "regression", "completion", "sensing")
INITS = (
    "gaussian",
    "matched",
    "lecun",
    "he",
    "glorot",
    "orthogonal",
    "identity",
    "alpha-m",
    "balanced",
    "lambda-balanced",
    "task-aligned",
    "file",
)
METHODS = ("flow", "auto", "gd", "momentum", "adam", "rmsprop", "adagrad", "sgd")
FLOWS = ("flow", "auto")
INTEGRATORS = ("auto", "tsit5", "dopri8", "kvaerno5", "stabilised", "exponential")
PROBES = (
    *("loss", "gradient_norm", "product", "singular_values", "product_effective_rank", "product_stable_rank"),
    *("product_nuclear_norm", "product_numerical_rank", "layer_norms", "layer_balancedness", "layer_lambda"),
    *("layer_lambda_residual", "layer_lambda_operator_residual", "layer_alignment", "ntk", "weights"),
    *("layer_singular_values", "conserved", "drift", "kernel_distance", "kernel_movement", "left_alignment"),
    *("right_alignment", "mode_strengths", "reconstruction_error", "held_out_error"),
)
SPACINGS = ("linear", "log")

_FILE = text("the name of a file", "FILE")
_WITHOUT_SCALE = ("lecun", "he", "glorot", "file")


@dataclass(frozen=True)
class Option:
    """One setting: `name` is the flag without its dashes and the key of a file.

    `only` names another setting and the values of it for which this one has a meaning.
    """

    name: str
    kind: Kind
    default: Any
    group: str
    help: str
    only: tuple[str, tuple[str, ...]] | None = None


def _but(options: tuple[str, ...], *without: str) -> tuple[str, ...]:
    return tuple(option for option in options if option not in without)


SEED = Option("seed", count(at_least=0), 0, "Run", "seed of all randomness")

WIDTHS = Option(
    "widths",
    listed(count(at_most=WIDTH), "10,10,10", LAYERS + 1),
    (10, 10, 10),
    "Problem",
    "widths of all layers, input first",
)

SIMULATE = (
    WIDTHS,
    Option("loss", choice(*LOSSES), "squared", "Problem", "what is minimised"),
    Option("target", _FILE, None, "Problem", "file of the target matrix, (out, in); generated if not given"),
    Option("rank", count(), None, "Problem", "rank of a generated target; by default the smallest width"),
    Option(
        "spectrum",
        listed(number(at_least=0), "5,3,1"),
        None,
        "Problem",
        "singular values of a generated target, with random singular vectors",
    ),
    Option(
        "scale", number(above=0), 1.0, "Problem", "size of the entries of a generated target, or factor on --spectrum"
    ),
    Option("mask", _FILE, None, "Problem", "file of zeros and ones, one where observed", ("loss", ("completion",))),
    Option(
        "observed",
        number(above=0, at_most=1),
        0.5,
        "Problem",
        "fraction of entries observed, if there is no --mask",
        ("loss", ("completion",)),
    ),
    Option(
        "samples",
        count(),
        None,
        "Problem",
        "number of generated samples (by default ten times the input width) or measurements (one for each entry)",
        ("loss", ("regression", "sensing")),
    ),
    Option(
        "inputs",
        _FILE,
        None,
        "Problem",
        "file of inputs, (in, samples), or of measurement matrices, (measurements, out, in)",
        ("loss", ("regression", "sensing")),
    ),
    Option(
        "outputs",
        _FILE,
        None,
        "Problem",
        "file of outputs, (out, samples), or of measured values",
        ("loss", ("regression", "sensing")),
    ),
    Option(
        "whiten",
        switch(),
        False,
        "Problem",
        "whiten the inputs, so that their covariance is the identity",
        ("loss", ("regression",)),
    ),
    Option("l2", number(at_least=0), 0.0, "Problem", "weight of the penalty on all layers"),
    Option("init", choice(*INITS), "gaussian", "Start", "how the layers are drawn"),
    Option(
        "init-scale",
        number(above=0),
        0.1,
        "Start",
        "standard deviation, scale or strength of the initialisation",
        ("init", _but(INITS, *_WITHOUT_SCALE)),
    ),
    Option(
        "m",
        number(at_least=1, infinite=True),
        math.inf,
        "Start",
        "number m of alpha-m, from 1 to inf",
        ("init", ("alpha-m",)),
    ),
    Option(
        "lam",
        number(),
        0.0,
        "Start",
        "number λ of lambda-balanced and task-aligned",
        ("init", ("lambda-balanced", "task-aligned")),
    ),
    Option(
        "init-file",
        _FILE,
        None,
        "Start",
        "layers of --init file: an .npz of W1, W2, …, or the .nc of a finished run",
        ("init", ("file",)),
    ),
    Option(
        "method",
        choice(*METHODS),
        "flow",
        "Method",
        "gradient flow, a closed form of it where one applies (auto), or a discrete optimiser",
    ),
    Option("rtol", number(above=0, at_most=0.1), 1e-8, "Method", "relative tolerance of the flow", ("method", FLOWS)),
    Option("atol", number(at_least=0), 0.0, "Method", "absolute tolerance of the flow", ("method", FLOWS)),
    Option("integrator", choice(*INTEGRATORS), "auto", "Method", "how the flow is integrated", ("method", FLOWS)),
    Option(
        "lr",
        number(above=0),
        None,
        "Method",
        "learning rate; by default 0.01, and 0.001 for adam",
        ("method", _but(METHODS, *FLOWS)),
    ),
    Option("batch", count(), 1, "Method", "terms of the loss per step of sgd", ("method", ("sgd",))),
    Option("horizon", number(above=0, at_most=TIME), None, "Run", "time, or number of steps, at which the run ends"),
    Option(
        "points",
        count(at_least=2, at_most=POINTS),
        200,
        "Run",
        "number of records up to --horizon; without that, every step of a flow and every 100th of others is recorded",
    ),
    Option("spacing", choice(*SPACINGS), "linear", "Run", "spacing of the records up to --horizon"),
    Option("until-loss", number(above=0), None, "Run", "stop once the loss is below this"),
    Option("max-steps", count(at_most=STEPS), 10_000_000, "Run", "limit on steps"),
    Option("wall-limit", number(above=0), None, "Run", "limit on seconds"),
    Option(
        "probes",
        listed(text("the name of a probe", "NAME"), "loss,singular_values"),
        ("loss", "singular_values"),
        "Run",
        "what is recorded; a wrong name is answered with all there are",
    ),
    SEED,
    Option("seeds", count(at_most=100_000), 1, "Run", "number of runs, from independent starts, of the same problem"),
    Option("out", text("the name of a folder", "DIR"), None, "Output", "folder for data and pictures"),
    Option("no-plot", switch(), False, "Output", "make no picture"),
    Option("force", switch(), False, "Output", "replace files that this command did not write"),
)
"""All settings of `dln simulate`."""

_TRAINING = ("method", "lr", "batch", "rtol", "atol", "integrator", "until-loss", "max-steps", "wall-limit", "seeds")

EXACT = tuple(option for option in SIMULATE if option.name not in _TRAINING)
"""All settings of `dln exact`: those of a simulation that do not say how to train."""


# --- From the table to flags ------------------------------------------------------------------------------------------


def _shown(default: Any) -> str:
    return ",".join(map(str, default)) if isinstance(default, tuple) else f"{default}"


def _annotation(option: Option) -> Any:
    flag = f"--{option.name}"
    words = option.help[0].upper() + option.help[1:]
    words += f": {', '.join(option.kind.options)}" if option.kind.options else ""
    if isinstance(option.default, bool):
        return Annotated[bool, typer.Option(flag, help=f"{words}.", rich_help_panel=option.group)]
    default = "" if option.default is None else f" (default {_shown(option.default)})"
    return Annotated[
        str | None,
        typer.Option(flag, help=f"{words}{default}.", metavar=option.kind.metavar, rich_help_panel=option.group),
    ]


def as_flags(table: tuple[Option, ...]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator that gives a command `(flags, config, as_json)` one flag for each setting, and --config and --json."""
    config = Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="TOML file of settings.", rich_help_panel="Output")
    ]
    as_json = Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, and nothing else.", rich_help_panel="Output")
    ]

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        def run(**values: Any) -> None:
            flags = {option.name: values[option.name.replace("-", "_")] for option in table}
            given = {name: value for name, value in flags.items() if value is not None and value is not False}
            command(given, values["config"], values["as_json"])

        kind = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter(
                option.name.replace("-", "_"),
                kind,
                default=False if isinstance(option.default, bool) else None,
                annotation=_annotation(option),
            )
            for option in table
        ]
        parameters.append(inspect.Parameter("config", kind, default=None, annotation=config))
        parameters.append(inspect.Parameter("as_json", kind, default=False, annotation=as_json))
        run.__signature__ = inspect.Signature(parameters)
        run.__doc__, run.__name__ = command.__doc__, command.__name__
        return run

    return wrap


# --- From flags and file to settings ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings(Mapping[str, Any]):
    """Values of all settings by name.

    `given` names those that a flag or the file stated, `idle` those without a meaning beside the others.
    """

    by_name: Mapping[str, Any]
    given: frozenset[str]
    idle: frozenset[str]

    def __getitem__(self, name: str) -> Any:
        return self.by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)

    def plain(self) -> dict[str, Any]:
        """Those that have a value and a meaning, as JSON knows values."""
        kept = {name: value for name, value in self.items() if value is not None and name not in self.idle}
        infinite = {name: "inf" for name, value in kept.items() if isinstance(value, float) and math.isinf(value)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in kept.items()} | infinite


def read_value(option: Option, value: Any, where: str) -> Any:
    """A value of an option, or a refusal."""
    return read_kind(option.kind, value, where)


def read_kind(kind: Kind, value: Any, where: str) -> Any:
    """A value as its kind reads it, or a refusal."""
    try:
        return kind.read(value)
    except (ValueError, TypeError, OverflowError) as error:
        hint = f" {error}" if str(error).startswith(("Did you mean", "Known:")) else ""
        what = kind.wanted if not hint else "a known name"
        shown = repr(value)
        shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}… ({len(shown):,} characters)"
        raise UsageError(f"{where} must be {what}, but is {shown}.{hint}") from None


def read_config(path: str) -> dict[str, Any]:
    """Return keys and values of a TOML file."""
    from deeplinear.readers import Source, read_toml

    return read_toml(Source.of(path, "--config"))


def resolve(table: tuple[Option, ...], flags: Mapping[str, Any], config: str | None) -> Settings:
    """Settings from defaults, the file and the flags, the latter going first; unknown and idle ones are refused."""
    options = {option.name: option for option in table}
    values = {name: option.default for name, option in options.items()}
    spoken: dict[str, str] = {}
    for name, value in (read_config(config) if config is not None else {}).items():
        if name not in options:
            raise UsageError(f"{config}: there is no setting '{name}'. {near_name(name, options)}")
        spoken[name] = f"{config}: {name}"
        values[name] = read_value(options[name], value, spoken[name])
    for name, value in flags.items():
        spoken[name] = f"--{name}"
        values[name] = read_value(options[name], value, spoken[name])
    idle = frozenset(o.name for o in table if o.only is not None and values[o.only[0]] not in o.only[1])
    for name, where in spoken.items():
        only = options[name].only
        if only is not None and name in idle:
            raise UsageError(
                f"{where} has a meaning for {only[0]} {' or '.join(only[1])} only, but {only[0]} is {values[only[0]]}; "
                "leave it out."
            )
    return Settings(values, frozenset(spoken), idle)


def completed(settings: Settings, table: tuple[Option, ...], **values: Any) -> Settings:
    """Settings with those of a larger table added: given values, defaults for the rest."""
    defaults = {option.name: option.default for option in table}
    return Settings({**defaults, **settings.by_name, **values}, settings.given, settings.idle)
