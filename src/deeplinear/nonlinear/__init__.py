"""Beyond linear: gated recurrent units as teachers and students; image classifiers and the ranks of their layers."""

from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if TYPE_CHECKING:
    from deeplinear.nonlinear._classifier import (
        ClassifierTraining as ClassifierTraining,
        Protocol as Protocol,
        augmented as augmented,
        train_classifier as train_classifier,
    )
    from deeplinear.nonlinear._convolutional import (
        VGG as VGG,
        ResNet as ResNet,
        resnet as resnet,
        vgg as vgg,
    )
    from deeplinear.nonlinear._gru import (
        GRU as GRU,
        every_output as every_output,
        gru_from_weights as gru_from_weights,
        last_output as last_output,
        normal_gru as normal_gru,
        sequence_loss as sequence_loss,
        uniform_gru as uniform_gru,
    )
    from deeplinear.nonlinear._image_study import (
        MOMENTS as MOMENTS,
        STARTS as STARTS,
        ConvolutionStudy as ConvolutionStudy,
        ReLUStudy as ReLUStudy,
        enlarged as enlarged,
        run_convolution_study as run_convolution_study,
        run_relu_study as run_relu_study,
    )
    from deeplinear.nonlinear._relu import (
        ReLUNetwork as ReLUNetwork,
        gaussian_relu as gaussian_relu,
        identity_relu as identity_relu,
    )
    from deeplinear.nonlinear._study import (
        GRU_STUDIES as GRU_STUDIES,
        GRUStudy as GRUStudy,
        run_gru_study as run_gru_study,
    )
    from deeplinear.nonlinear._training import (
        GRUTraining as GRUTraining,
        SequenceExtrapolation as SequenceExtrapolation,
        adam_start as adam_start,
        adam_step as adam_step,
        gaussian_sequences as gaussian_sequences,
        gru_response as gru_response,
        gru_teacher as gru_teacher,
        sequence_extrapolation as sequence_extrapolation,
        train_gru as train_gru,
    )
    from deeplinear.nonlinear._weight_ranks import (
        AVERAGES as AVERAGES,
        RANKS as RANKS,
        LayerRank as LayerRank,
        WeightRanks as WeightRanks,
        layer_tensors as layer_tensors,
        unfolded as unfolded,
        weight_ranks as weight_ranks,
    )
else:
    __getattr__, __dir__, __all__ = attach(__name__)
