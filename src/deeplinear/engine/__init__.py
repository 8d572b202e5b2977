"""The native engine: flows and discrete updates of linear networks in compiled C++, from start to end.

It knows arrays only; `dynamics` says what it moves. Where it cannot be used (`missing()` says why), everything runs as
programs of XLA.
"""

from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if TYPE_CHECKING:
    from deeplinear.engine._build import ADVICE as ADVICE
    from deeplinear.engine._card import (
        MOST_SHARED as MOST_SHARED,
        Launch as Launch,
        Shape as Shape,
        card as card,
        compile_for as compile_for,
        compiler as compiler,
        no_card as no_card,
        shape_of as shape_of,
    )
    from deeplinear.engine._library import (
        BATCH as BATCH,
        DONE as DONE,
        FORMS as FORMS,
        FULL as FULL,
        LAW as LAW,
        NUMBERS as NUMBERS,
        REALS as REALS,
        STOPPED as STOPPED,
        UPDATES as UPDATES,
        WHOLES as WHOLES,
        WORKING as WORKING,
        Family as Family,
        Holder as Holder,
        Law as Law,
        Pair as Pair,
        Records as Records,
        Spec as Spec,
        Update as Update,
        Worker as Worker,
        available as available,
        dgemm as dgemm,
        lanes as lanes,
        missing as missing,
    )
else:
    __getattr__, __dir__, __all__ = attach(__name__)
