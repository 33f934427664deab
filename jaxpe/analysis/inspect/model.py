"""Interface of models for the stages: sizes, and programs of token ids and positions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from jaxpe.analysis.attention.logit_sums import Rotation
from jaxpe.analysis.inspect.result import EncodingStage, Kind
from jaxpe.plans import RopeAnalysis

Program = Callable[..., Any]


class Trace(NamedTuple):
    """Attention and hidden states of some documents.

    Attributes:
        logits: logits of attention, `[layers, documents, heads, n, n]`, of `attention_layers`.
        weights: weights of attention, of the same shape.
        hidden_states: input of each layer, and output of the last,
            `[layers + 1, documents, n, dim]`.
    """

    logits: Any
    weights: Any
    hidden_states: Any


class ModelSizes(NamedTuple):
    """Numbers of a model.

    Attributes:
        layers: number of layers.
        heads: number of heads of queries.
        head_width: width of a head.
        dim: width of the hidden states.
        vocabulary: number of tokens.
        parameters: number of parameters.
        attention_layers: numbers of the layers whose attention is traced; all when None.
    """

    layers: int
    heads: int
    head_width: int
    dim: int
    vocabulary: int
    parameters: int
    attention_layers: tuple[int, ...] | None = None


@runtime_checkable
class InspectedModel(Protocol):
    """A model of any framework, as stages see it.

    Arguments and results of the programs are arrays. Token ids are `[documents, n]`; positions are
    `[n]`, the same for all documents.
    """

    @property
    def kind(self) -> Kind:
        """Kind of the model."""
        ...

    @property
    def causal(self) -> bool:
        """Whether a token sees no later ones."""
        ...

    @property
    def sizes(self) -> ModelSizes:
        """Numbers of the model."""
        ...

    @property
    def encodings(self) -> tuple[str, ...]:
        """Ways in which positions enter, such as "rotary"."""
        ...

    @property
    def table_length(self) -> int | None:
        """Rows of the table of position vectors added to embeddings; None without a table."""
        ...

    @property
    def bounded(self) -> bool:
        """Whether there are no positions beyond the context."""
        ...

    @property
    def left_out(self) -> str:
        """Parts of the model that are not seen, in a sentence; empty if all are."""
        ...

    def absent(self) -> dict[str, str]:
        """Reasons of stages that the model's code does not allow."""
        ...

    def context(self, path: Path) -> int:
        """Positions for which the model in a folder was configured; 0 if unknown."""
        ...

    def position_table(self, length: int) -> np.ndarray:
        """Position vectors added to embeddings, `[length, dim]`."""
        ...

    def describe_encoding(
        self, *, path: Path | None, length: int, most: int | None
    ) -> EncodingStage:
        """Ways in which positions enter, with biases over a length and `most` rows of a table."""
        ...

    def traced(self, function: Callable[..., Any]) -> Program:
        """Program (ids, *args) of `function(trace, ids, *args)`."""
        ...

    def rotations(self, rope: RopeAnalysis | None) -> tuple[Rotation, Program] | None:
        """One rotation of all layers, and a program (ids) of their queries and keys.

        They are `[layers, documents, n, heads, width]`, before or after the rotation. None for
        layers that differ, or where they are not seen.
        """
        ...

    def hidden(self) -> Program:
        """Program (ids, positions) of the last hidden states `[documents, n, dim]`."""
        ...

    def losses(self) -> Program:
        """Program (ids, positions, frequencies=None) of the losses of all tokens but the first."""
        ...

    def unscaled_reason(self, context: int, rope: RopeAnalysis | None) -> str:
        """Reason why `losses` takes no other rotary frequencies; empty if it does."""
        ...

    def masked_losses(self) -> Program:
        """Program (batch, positions) of the mean loss of the masked tokens, `[documents]`."""
        ...

    def answers(self) -> Program:
        """Program (text `[n]`, questions `[count, m]`) of the logits of the next token."""
        ...
