"""Training: losses, one step, batches, checkpoints and the loop, for any pytree of parameters."""

from jaxpe.training.batches import batches, in_order
from jaxpe.training.checkpoints import Checkpoints
from jaxpe.training.config import ModelConfig, TrainConfig, load_config
from jaxpe.training.log import read_log
from jaxpe.training.loop import Hook, NonFiniteLoss, StopTraining, every_n_steps, fit
from jaxpe.training.losses import MeanMetric
from jaxpe.training.optimizers import adamw, learning_rate_schedule, parameter_average
from jaxpe.training.probe import as_record, probe_geometry, reference_geometry
from jaxpe.training.run import load_run, train
from jaxpe.training.step import averaged_params, evaluate, init_state, step_function, train_step
from jaxpe.training.tasks import causal_lm, classification, masked_lm, regression, translation

__all__ = [
    "Checkpoints", "Hook", "MeanMetric", "ModelConfig", "NonFiniteLoss", "StopTraining",
    "TrainConfig", "adamw", "as_record", "averaged_params", "batches", "causal_lm",
    "classification", "evaluate", "every_n_steps", "fit", "in_order", "init_state",
    "learning_rate_schedule", "load_config", "load_run", "masked_lm", "parameter_average",
    "probe_geometry", "read_log", "reference_geometry", "regression", "step_function", "train",
    "train_step", "translation",
]  # fmt: skip
