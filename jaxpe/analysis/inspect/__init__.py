"""Inspection of a model: position in its weights, attention, hidden states, loss and reach.

    result = inspect_model(InspectOptions(model="all-MiniLM-L6-v2", source="reviews.csv"))
    result.attention.overall, result.spectral.mean.toeplitz

It imports Flax and Optax, and is itself imported on first access.
"""

from typing import TYPE_CHECKING

from jaxpe._core.lazy import lazy_names

if TYPE_CHECKING:
    from jaxpe.analysis.inspect.attention_result import (
        JUDGED,
        PARTS,
        AttentionSinks,
        AttentionStage,
        HeadStage,
        OffsetBaseline,
        PartShares,
        RotaryBands,
        SpectralStage,
        Variance,
    )
    from jaxpe.analysis.inspect.attention_statistics import inspect_attention
    from jaxpe.analysis.inspect.averages import Means
    from jaxpe.analysis.inspect.flax_model import FlaxModel, ModelSizes, Trace, token_losses
    from jaxpe.analysis.inspect.head_ablation import head_drops
    from jaxpe.analysis.inspect.head_spectra import logit_spectra
    from jaxpe.analysis.inspect.job import STAGES, inspect_model, inspect_torch
    from jaxpe.analysis.inspect.needles import needle_retrieval
    from jaxpe.analysis.inspect.options import InspectOptions
    from jaxpe.analysis.inspect.position_ablation import ablate_positions, moved_positions
    from jaxpe.analysis.inspect.position_probe import hidden_states, probe_layers, probed_layers
    from jaxpe.analysis.inspect.reach import context_reach, embedding_reach
    from jaxpe.analysis.inspect.result import (
        AblationStage,
        EncodingStage,
        FarContextGain,
        GeometryStage,
        InspectFacts,
        InspectResult,
        LearnedTable,
        LossStage,
        NeedleStage,
        PositionMove,
        ProbeStage,
        ScaledLoss,
        ScalingChange,
        TextReach,
    )
    from jaxpe.analysis.inspect.subject import InspectSubject, read_inspect_subject
    from jaxpe.analysis.inspect.token_loss import loss_by_position
    from jaxpe.analysis.inspect.torch_model import TorchModel
    from jaxpe.analysis.inspect.weights import describe_encoding, describe_table, table_geometry

__all__ = [
    "JUDGED", "PARTS", "STAGES", "AblationStage", "AttentionSinks", "AttentionStage",
    "EncodingStage", "FarContextGain", "FlaxModel", "GeometryStage", "HeadStage",
    "InspectFacts", "InspectOptions", "InspectResult", "InspectSubject", "LearnedTable",

    "LossStage", "Means", "ModelSizes", "NeedleStage", "OffsetBaseline", "PartShares",
    "PositionMove", "ProbeStage", "RotaryBands", "ScaledLoss", "ScalingChange",
    "SpectralStage", "TextReach", "TorchModel", "Trace", "Variance", "ablate_positions",
    "context_reach", "describe_encoding", "describe_table", "embedding_reach", "head_drops",
    "hidden_states", "inspect_attention", "inspect_model", "inspect_torch", "logit_spectra",
    "loss_by_position", "moved_positions", "needle_retrieval", "probe_layers", "probed_layers",
    "read_inspect_subject", "table_geometry", "token_losses",
]  # fmt: skip

_MODULES = (
    "options", "attention_result", "result", "job", "attention_statistics", "averages",
    "flax_model", "head_ablation", "head_spectra", "needles", "position_ablation",
    "position_probe", "reach", "subject", "token_loss", "torch_model", "weights",
)  # fmt: skip
__getattr__, __dir__ = lazy_names(__name__, __all__, within=_MODULES)
