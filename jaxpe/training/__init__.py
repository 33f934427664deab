"""Training: losses, one step, batches, checkpoints and the loop, for any pytree of parameters."""

from jaxpe.training.batches import batches, in_order
from jaxpe.training.checkpoints import Checkpoints
from jaxpe.training.config import ModelConfig, TrainConfig, load_config
from jaxpe.training.log import Log, read_log
from jaxpe.training.loop import FitResult, Hook, NonFiniteLoss, StopTraining, every_n_steps, fit
from jaxpe.training.losses import (
    MeanMetric,
    accuracy,
    causal_lm_loss,
    cross_entropy,
    mean_squared_error,
    perplexity,
)
from jaxpe.training.masking import MaskedTokens, mask_tokens
from jaxpe.training.optimizers import (
    adamw,
    learning_rate_schedule,
    parameter_average,
    weight_decay_mask,
)
from jaxpe.training.probe import (
    GeometryProbe,
    GeometryScores,
    ReferenceGeometry,
    as_record,
    encoding_probe,
    probe_geometry,
    reference_geometry,
)
from jaxpe.training.run import Evaluations, LoadedRun, TrainResult, TrainSummary, load_run, train
from jaxpe.training.step import (
    LossFunction,
    TrainState,
    averaged_params,
    evaluate,
    init_state,
    step_function,
    train_step,
)
from jaxpe.training.tasks import (
    causal_lm,
    classification,
    logits_at,
    masked_lm,
    regression,
    translation,
)

__all__ = [
    "Checkpoints", "Evaluations", "FitResult", "GeometryProbe", "GeometryScores", "Hook",
    "LoadedRun", "Log", "LossFunction", "MaskedTokens", "MeanMetric", "ModelConfig",
    "NonFiniteLoss", "ReferenceGeometry", "StopTraining", "TrainConfig", "TrainResult",
    "TrainState", "TrainSummary", "accuracy", "adamw", "as_record", "averaged_params", "batches",
    "causal_lm", "causal_lm_loss", "classification", "cross_entropy", "encoding_probe", "evaluate",
    "every_n_steps", "fit", "in_order", "init_state", "learning_rate_schedule", "load_config",
    "load_run", "logits_at", "mask_tokens", "masked_lm", "mean_squared_error", "parameter_average",
    "perplexity", "probe_geometry", "read_log", "reference_geometry", "regression",
    "step_function", "train", "train_step", "translation", "weight_decay_mask",
]  # fmt: skip
