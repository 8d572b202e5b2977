"""How parameters move: flows, discrete updates, probes and stopping rules."""

from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if TYPE_CHECKING:
    from deeplinear.dynamics._base import (
        AbstractMethod as AbstractMethod,
        AbstractUpdate as AbstractUpdate,
        Progress as Progress,
    )
    from deeplinear.dynamics._coupling import (
        Coupling as Coupling,
        EntryGram as EntryGram,
        coupling as coupling,
        coupling_examples as coupling_examples,
    )
    from deeplinear.dynamics._flow import (
        GradientFlow as GradientFlow,
        Switching as Switching,
    )
    from deeplinear.dynamics._plasticity import (
        plasticity as plasticity,
    )
    from deeplinear.dynamics._plasticity_result import (
        Plasticity as Plasticity,
    )
    from deeplinear.dynamics._simulate import (
        ensemble as ensemble,
        resume as resume,
        simulate as simulate,
    )
    from deeplinear.dynamics._stopping import (
        Until as Until,
        steady as steady,
        until as until,
    )
    from deeplinear.dynamics._updates import (
        Adagrad as Adagrad,
        Adam as Adam,
        AdamState as AdamState,
        GradientDescent as GradientDescent,
        Momentum as Momentum,
        MomentumState as MomentumState,
        RMSProp as RMSProp,
    )
    from deeplinear.dynamics._variants import (
        Milestones as Milestones,
        Minibatch as Minibatch,
    )
else:
    __getattr__, __dir__, __all__ = attach(__name__)
