"""Deep linear networks as a program.

Sub-packages, and the files of each, are loaded when they are first used, so that importing this package costs nothing
and changes no setting of JAX.
"""

from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if TYPE_CHECKING:
    from deeplinear import (
        core as core,
        datasets as datasets,
        diagnosis as diagnosis,
        dynamics as dynamics,
        engine as engine,
        estimators as estimators,
        exact as exact,
        experiments as experiments,
        following as following,
        geometry as geometry,
        lab as lab,
        landscape as landscape,
        models as models,
        nonlinear as nonlinear,
        plots as plots,
        probes as probes,
        readers as readers,
        recurrent as recurrent,
        report as report,
        theory as theory,
    )
    from deeplinear._about import (
        __version__ as __version__,
        keep_programs as keep_programs,
        use_64_bit as use_64_bit,
    )
else:
    __getattr__, __dir__, _ = attach(__name__)  # no __all__: `from deeplinear import *` would load everything
