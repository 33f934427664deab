"""Options of `jaxpe train`, and the command that has those of a configuration."""

import dataclasses

from tyro.conf import Positional

from jaxpe.cli.parsing import command_line, plain
from jaxpe.training import TrainConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(TrainConfig):
    __doc__ = TrainConfig.__doc__
    source: Positional[str] = TrainConfig.source


def config_with_seed(config: TrainConfig, init_seed: int) -> TrainConfig:
    """Configuration with other initial weights and another folder, next to the first."""
    out = config.out.parent / f"{config.out.resolve().name}-init-{init_seed}"
    return dataclasses.replace(config, init_seed=init_seed, out=out, resume=False)


def train_command(config: TrainConfig) -> str:
    """Command that trains a configuration from the start."""
    return command_line(plain(config, Command))
