"""Models, losses, problems, initialisations and their conserved quantities."""

from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if TYPE_CHECKING:
    from deeplinear.models._balance import (
        LambdaEstimate as LambdaEstimate,
        balancedness as balancedness,
        conserved as conserved,
        drift as drift,
        lambda_estimate as lambda_estimate,
        layer_strengths as layer_strengths,
    )
    from deeplinear.models._balanced_inits import (
        Balanced as Balanced,
        FromSVD as FromSVD,
        LambdaBalanced as LambdaBalanced,
        TaskAligned as TaskAligned,
        feasible_lambda as feasible_lambda,
        two_balanced_layers as two_balanced_layers,
    )
    from deeplinear.models._base import (
        AbstractLoss as AbstractLoss,
        AbstractModel as AbstractModel,
        AbstractSumLoss as AbstractSumLoss,
    )
    from deeplinear.models._data import (
        Images as Images,
        Samples as Samples,
        low_rank_target as low_rank_target,
        random_mask as random_mask,
        random_regression as random_regression,
        semantic_hierarchy as semantic_hierarchy,
        spectral_target as spectral_target,
        whiten as whiten,
    )
    from deeplinear.models._entries import NetworkEntries as NetworkEntries, sparse_completion as sparse_completion
    from deeplinear.models._gram import entry_gradient as entry_gradient, entry_gram as entry_gram
    from deeplinear.models._inits import (
        AbstractInit as AbstractInit,
        AlphaM as AlphaM,
        Explicit as Explicit,
        Gaussian as Gaussian,
        Glorot as Glorot,
        He as He,
        LeCun as LeCun,
        MatchedGaussian as MatchedGaussian,
        Orthogonal as Orthogonal,
        Scaled as Scaled,
        ScaledIdentity as ScaledIdentity,
        WarmStart as WarmStart,
    )
    from deeplinear.models._losses import (
        Completion as Completion,
        Energy as Energy,
        EntryCompletion as EntryCompletion,
        Regression as Regression,
        SampleRegression as SampleRegression,
        Sensing as Sensing,
        SquaredDistance as SquaredDistance,
    )
    from deeplinear.models._masked import (
        Masked as Masked,
        SkipNetwork as SkipNetwork,
        skip_network as skip_network,
        surviving_laws as surviving_laws,
    )
    from deeplinear.models._networks import DeepLinear as DeepLinear, NarrowDeepLinear as NarrowDeepLinear
    from deeplinear.models._patterns import (
        Component as Component,
        Connectivity as Connectivity,
        Observations as Observations,
        bipartite_adjacency as bipartite_adjacency,
        block_mask as block_mask,
        canonical_pattern as canonical_pattern,
        column_mask as column_mask,
        connected_mask as connected_mask,
        connectivity as connectivity,
        diagonal_mask as diagonal_mask,
        disconnected_mask as disconnected_mask,
        entry_connectivity as entry_connectivity,
        observed_entries as observed_entries,
        unique_patterns as unique_patterns,
    )
    from deeplinear.models._problem import Problem as Problem, checked_problem as checked_problem
    from deeplinear.models._recurrent import LinearRNN as LinearRNN, System as System, checked_system as checked_system
    from deeplinear.models._structured_inits import (
        Aligned as Aligned,
        Cumulative as Cumulative,
        Decoupled as Decoupled,
        DeltaBalanced as DeltaBalanced,
        Diagonal as Diagonal,
        Pyramid as Pyramid,
        rescale_balance as rescale_balance,
    )
    from deeplinear.models._white import WhiteInputs as WhiteInputs
else:
    __getattr__, __dir__, __all__ = attach(__name__)
