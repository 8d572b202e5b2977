"""Beyond linear: gated recurrent units as teachers and students."""

from deeplinear.nonlinear._gru import (
    GRU as GRU,
    every_output as every_output,
    gru_from_weights as gru_from_weights,
    last_output as last_output,
    normal_gru as normal_gru,
    sequence_loss as sequence_loss,
    uniform_gru as uniform_gru,
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
