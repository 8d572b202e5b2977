"""Figures and tables that can be made again: registered experiments, a store of results, runners."""

from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if TYPE_CHECKING:
    from deeplinear.experiments._base import (
        Claim as Claim,
        Context as Context,
        Experiment as Experiment,
        seed_key as seed_key,
    )
    from deeplinear.experiments._checks import (
        CheckTask as CheckTask,
        compute_check as compute_check,
        run_checks as run_checks,
    )
    from deeplinear.experiments._compute import (
        FORMATS as FORMATS,
        Result as Result,
        Task as Task,
        compute as compute,
        environment as environment,
        task_of as task_of,
    )
    from deeplinear.experiments._executors import EXECUTORS as EXECUTORS, execute as execute
    from deeplinear.experiments._registry import experiment as experiment, experiments as experiments
    from deeplinear.experiments._runner import (
        Member as Member,
        Settled as Settled,
        Tick as Tick,
        collect as collect,
        run as run,
    )
    from deeplinear.experiments._settings import (
        FigureSettings as FigureSettings,
        Setting as Setting,
        paper_settings as paper_settings,
    )
    from deeplinear.experiments._spec import (
        fields as fields,
        from_plain as from_plain,
        grid as grid,
        override as override,
        plain as plain,
        split_assignments as split_assignments,
    )
    from deeplinear.experiments._store import CorruptRecord as CorruptRecord, Record as Record, Store as Store
else:
    __getattr__, __dir__, __all__ = attach(__name__)
