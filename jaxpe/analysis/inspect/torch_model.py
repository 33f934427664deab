"""Models of transformers in torch as stages see them, whatever their class.

Torch is imported when a model is wrapped.
"""

import contextlib
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxpe._core.errors import InputError, reason, require
from jaxpe.analysis.inspect.flax_model import (
    ModelSizes,
    Program,
    Trace,
    scaling_reason,
    without_rotations,
)
from jaxpe.analysis.inspect.result import EncodingStage, Kind
from jaxpe.analysis.inspect.rotary_bands import Rotation
from jaxpe.analysis.inspect.torch_trace import (
    AttentionMaps,
    Watch,
    eager_attention,
    float_array,
    listed_modules,
)
from jaxpe.analysis.inspect.weights import describe_table
from jaxpe.nn.checkpoints.gguf_weights import gguf_file
from jaxpe.plans import RopeAnalysis, RopeOptions, explain_rope, read_config
from jaxpe.plans.job import RopeConfig, longest_context
from jaxpe.plans.result import LayerPlan
from jaxpe.plans.scaling import RopeFrequencies

_LENGTH = 12  # tokens of the first pass
_LENGTHS = ("max_position_embeddings", "n_positions")  # attributes of classes: rows of their tables
_ENTRIES = 2**26  # logits of one pass
_WRAPPED = ("attention_mask", "use_cache")  # options that a class without names passes on
_PASSED = ("output_hidden_states", "return_dict")  # options of classes that take any
_ROWS = 256  # tokens whose log-likelihoods are in memory at once
_BIAS = re.compile(r"alibi|rel(ative)?_(attention|bias|embed|pos|attn)|position_bias")
_HEADLESS = "The model has no head, so it predicts no next token: load it as a language model."
_NOT_FLAX = (
    "Queries and keys are split into content and position, and heads are ablated, in models that "
    "jaxpe.nn loads; transformers ran this one."
)
_ROTARY = re.compile(r"rotary|rope", re.IGNORECASE)


class TorchModel:
    """Model of `transformers`: a decoder or an encoder, with or without a head.

    Nothing is left on the model after a program has run. What its code does not show is left out,
    and said in `left_out` and `absent`.

    Args:
        model: a model that reads `input_ids`, in any dtype and on any device.

    Raises:
        InputError: a model with an encoder and a decoder, or one that reads no text.

    >>> model = TorchModel(AutoModel.from_pretrained("all-MiniLM-L6-v2"))  # doctest: +SKIP
    >>> model.kind, model.encodings  # doctest: +SKIP
    ('encoder', ('learned vectors',))
    """

    def __init__(self, model: Any):
        self.torch = require("torch", extra="torch")
        self.model, self.base = model, getattr(model, "base_model", model)
        name, config = type(model).__name__, model.config
        self._parameters = inspect.signature(model.forward).parameters
        if getattr(config, "is_encoder_decoder", False):
            raise InputError(f"{name} has an encoder and a decoder: pass one that is one of them")
        if "input_ids" not in self._parameters:
            raise InputError(f"{name} reads no `input_ids`: pass a model of text")
        self._config = config.get_text_config() if hasattr(config, "get_text_config") else config
        self._tokens = model.get_input_embeddings().weight
        self._layers: list[Any] = []
        self._offset, self._unmoved, self._partly = 0, "", False
        self._look()

    def _look(self) -> None:
        """First passes: layers, attention, table, head, what a token sees, positions."""
        n, vocabulary = _LENGTH, len(self._tokens)
        low, high = min(10, vocabulary // 2), min(vocabulary, 1000)
        ids = np.random.default_rng(0).integers(low, high, (2, n))
        watch, self._maps, hidden = self._traced(ids, look=True)
        self._layer_count, self._width = len(hidden) - 1, hidden[0].shape[-1]
        self._table, self._head_width = watch.table(self._tokens), watch.head_width
        changed = ids.copy()
        changed[:, -1] = low + (ids[:, -1] - low + 1) % (high - low)
        before = self._last_hidden(ids)
        apart = abs(before - self._last_hidden(changed))[:, :-1].max()
        self.causal = bool(apart <= 1e-4 * abs(before).max())
        logits: Any = getattr(self._run(ids), "logits", None)
        self._has_head = getattr(logits, "ndim", 0) == 3 and 2 * logits.shape[-1] > vocabulary
        if not {"position_ids"} & {*self._parameters, *_parameters(self.base)}:
            self._unmoved = f"{type(self.model).__name__} takes no `position_ids`"
            return
        if self._table is not None:
            table = self._traced(ids, np.arange(n), look=True)[0].table(self._tokens)
            self._offset = 0 if table is None else self._table.first - table.first
        if abs(before - self._last_hidden(ids, np.arange(n))).max() > 1e-3 * abs(before).max():
            self._unmoved = "its own positions are not 0, 1, 2 and so on"
        if not (self.causal or self._unmoved):  # order itself is nothing to a set of tokens
            order = np.random.default_rng(1).permutation(n)
            moved = self._last_hidden(ids[:, order], order)
            self._partly = abs(before[:, order] - moved).max() > 1e-3 * abs(before).max()

    # Calls of the model.

    @contextlib.contextmanager
    def _quiet(self) -> Iterator[None]:
        """Context without gradients, dropout and compiled code."""
        training = [module for module in self.model.modules() if module.training]
        self.model.eval()
        try:
            with self.torch.no_grad():
                yield
        finally:
            for module in training:
                module.training = True

    def _run(self, ids: Any, positions: Any = None, *, base: bool = False, **options: Any) -> Any:
        """Output of the model, or of the model below its head."""
        torch, model = self.torch, self.base if base else self.model
        ids = torch.as_tensor(np.array(ids, np.int64), device=self._tokens.device)
        # Without a mask, transformers takes positions out of order for several documents in a row.
        options |= {"attention_mask": torch.ones_like(ids), "use_cache": False, "return_dict": True}
        if positions is not None:
            at = torch.as_tensor(np.array(positions, np.int64) + self._offset)
            options["position_ids"] = at.to(ids.device).expand(ids.shape)
        parameters = _parameters(model)
        kinds = [one.kind.name for one in parameters.values()]
        known = {*parameters, *(_PASSED if "VAR_KEYWORD" in kinds else ())}
        known |= {*_WRAPPED} if "VAR_POSITIONAL" in kinds else set()
        given = {k: v for k, v in options.items() if k in known}
        with self._quiet():
            return model(input_ids=ids, **given)

    def _last_hidden(self, ids: Any, positions: Any = None) -> np.ndarray:
        found = self._run(ids, positions, base=True, output_hidden_states=True)
        last = getattr(found, "last_hidden_state", None)
        return float_array(found.hidden_states[-1] if last is None else last)

    def _traced(
        self, ids: Any, positions: Any = None, *, look: bool = False
    ) -> tuple["Watch", list[AttentionMaps], list[np.ndarray]]:
        """Record of a pass, maps of attention, and hidden states before and after layers."""
        watch = Watch(self.torch, np.shape(ids))
        modules = listed_modules(self.base) if look else self._layers
        with eager_attention(self.base), watch.interface(), watch.hooks(modules), watch.mode():
            found = self._run(ids, positions, base=True, output_hidden_states=True)
        if look:
            self._layers = watch.layers(self.base)
        states = watch.states(self._layers, getattr(found, "hidden_states", None))
        if not states or any(one is None for one in states):
            raise InputError(f"{type(self.model).__name__} shows no hidden states of its layers")
        return watch, watch.maps, [float_array(one) for one in states]

    def _losses(self, logits: Any, targets: Any) -> np.ndarray:
        """Losses −log p of targets `[n]` under logits `[n, vocabulary]`."""
        targets = self.torch.as_tensor(np.array(targets, np.int64), device=logits.device)
        parts = zip(logits.split(_ROWS), targets.split(_ROWS), strict=True)
        entropy = partial(self.torch.nn.functional.cross_entropy, reduction="none")
        return np.concatenate([float_array(entropy(x.float(), t)) for x, t in parts])

    def _rotations(self) -> list[Any]:
        """Modules with a table of rotary frequencies."""
        return [module for module in self.model.modules() if hasattr(module, "inv_freq")]

    @contextlib.contextmanager
    def _rotated(self, frequencies: RopeFrequencies | None) -> Iterator[None]:
        """Context in which the model turns by other frequencies."""
        if frequencies is None:
            yield
            return
        modules, inverse = self._rotations(), np.array(frequencies.inverse, np.float32)
        own = [(module.inv_freq, module.attention_scaling) for module in modules]
        try:
            for module in modules:
                module.inv_freq = self.torch.as_tensor(inverse, device=module.inv_freq.device)
                module.attention_scaling = frequencies.attention_factor
            yield
        finally:
            for module, (before, factor) in zip(modules, own, strict=True):
                module.inv_freq, module.attention_scaling = before, factor

    # Facts.

    @property
    def kind(self) -> Kind:
        """Kind of the model."""
        if not self._has_head:
            return "encoder"
        return "causal" if self.causal else "masked"

    def _chosen_maps(self, maps: list[AttentionMaps]) -> tuple[list[int], list[AttentionMaps]]:
        """The first map of each layer that has the most common number of heads, and its layer."""
        numbers = {id(module): k for k, module in enumerate(self._layers)}
        by_layer: dict[int, AttentionMaps] = {}
        for k, one in enumerate(maps):
            layer = next((numbers[i] for i in one.inside if i in numbers), None if numbers else k)
            if layer is not None:
                by_layer.setdefault(layer, one)
        counts = Counter(one.logits.shape[1] for one in by_layer.values())
        heads = max(counts, key=lambda count: counts[count], default=0)
        layers = sorted(k for k, one in by_layer.items() if one.logits.shape[1] == heads)
        return layers, [by_layer[k] for k in layers]

    @property
    def sizes(self) -> ModelSizes:
        """Numbers of the model."""
        layers, maps = self._chosen_maps(self._maps)
        heads = maps[0].logits.shape[1] if maps else 1
        return ModelSizes(
            layers=self._layer_count,
            heads=heads,
            head_width=self._head_width or self._width // heads,
            dim=self._width,
            vocabulary=len(self._tokens),
            parameters=sum(one.numel() for one in self.model.parameters()),
            attention_layers=None if layers == [*range(self._layer_count)] else tuple(layers),
        )

    @property
    def encodings(self) -> tuple[str, ...]:
        """Ways in which positions enter, by names of modules and fields of the configuration."""
        plans = self._plans
        modules = [(name, type(module).__name__) for name, module in self.model.named_modules()]
        names = [name for name, _ in self.model.named_parameters()] + [name for name, _ in modules]
        named = (part for pair in modules for part in pair)
        rotary = any(plan.turns for plan in plans) or any(map(_ROTARY.search, named))
        methods = " ".join(dir(self.base)) if not rotary else ""
        biased = any(map(_BIAS.search, names)) or "alibi" in methods
        entries = {
            "learned vectors": self._table is not None,
            "rotary": rotary,
            "bias": biased,
            "windows of attention": any(plan.window for plan in plans),
        }
        return tuple(name for name, found in entries.items() if found)

    @property
    def table_length(self) -> int | None:
        """Rows of the table of position vectors; None without a table."""
        return None if self._table is None else len(self._table.weight) - self._table.first

    @property
    def bounded(self) -> bool:
        """Whether a table, of vectors or of rotations, has as many rows as positions."""
        if self._table is not None:
            return True
        rows = [int(getattr(self._config, name, None) or 0) for name in _LENGTHS]
        tensors = (*self.model.parameters(), *self.model.buffers())
        return any(
            tensor.ndim == 2 and any(0 <= len(tensor) - row <= 2 for row in rows if row)
            for tensor in tensors
        )

    @property
    def left_out(self) -> str:
        """Layers whose attention is not seen, and positions that are not moved."""
        parts = []
        if layers := self.sizes.attention_layers:
            parts.append(
                f"Attention of {len(layers)} of {self._layer_count} layers is seen; the others "
                "have none, or another number of heads."
            )
        if self._partly:
            parts.append("`position_ids` move only a part of what depends on the order of tokens.")
        return " ".join(parts)

    def absent(self) -> dict[str, str]:
        """Reasons of stages that the model's code does not allow."""
        absent = dict.fromkeys(("spectral", "heads"), _NOT_FLAX)
        if not self._chosen_maps(self._maps)[0]:
            absent["attention"] = "No attention over pairs of tokens was seen in the model's code."
        if not self._has_head and self.causal:
            absent |= dict.fromkeys(("loss", "needles"), _HEADLESS)
        if self._unmoved:
            absent["ablation"] = f"Positions cannot be moved: {self._unmoved}."
        return absent

    def context(self, path: Path) -> int:
        """Positions of the table, or of the configuration; 0 if unknown."""
        if self.table_length is not None:
            return self.table_length
        with contextlib.suppress(InputError):
            return longest_context(self._configuration.configuration)
        return 0

    @property
    def _configuration(self) -> RopeConfig:
        return read_config(self.model.config.to_dict())

    @property
    def _plans(self) -> tuple[LayerPlan, ...]:
        """Plans of the layers; empty for a type without rules."""
        with contextlib.suppress(InputError):
            return self._configuration.plan()
        return ()

    def position_table(self, length: int) -> np.ndarray:
        """Position vectors added to embeddings, `[length, dim]`."""
        assert self._table is not None  # or the stage is absent
        first = self._table.first
        return float_array(self._table.weight[first : first + length])

    def describe_encoding(
        self, *, path: Path | None, length: int, most: int | None
    ) -> EncodingStage:
        """Learned table and rotary configuration; biases are not read."""
        table = rope = None
        if most is not None and self._table is not None:
            norm = float(np.linalg.norm(float_array(self._tokens), axis=1).mean())
            table = describe_table(self.position_table(most), token_norm=norm)
        if path is not None and "rotary" in self.encodings:
            with contextlib.suppress(InputError):
                rope = explain_rope(RopeOptions(config=str(path)))
        return EncodingStage(table, None, rope if rope is not None and rope.widest else None)

    # Programs.

    def traced(self, function: Callable[..., Any]) -> Program:
        """Program (ids, *args) of `function(trace, ids, *args)`."""
        compiled = jax.jit(function)

        def run(ids: Any, *args: Any) -> Any:
            _, maps, hidden = self._traced(ids)
            chosen = self._chosen_maps(maps)[1]
            logits, weights = (
                np.stack([getattr(one, name) for one in chosen]) if chosen else None
                for name in ("logits", "weights")
            )
            return compiled(Trace(logits, weights, np.stack(hidden)), np.asarray(ids), *args)

        return run

    def rotations(self, rope: RopeAnalysis | None) -> tuple[Rotation, Program] | None:
        """Rotation of the configuration, and a program (ids) of queries and keys."""
        plan = rope.widest if rope is not None and len(rope.groups) == 1 else None
        if plan is None or plan.place != "first" or plan.pairing not in ("half", "interleaved"):
            return None
        maps = self._chosen_maps(self._maps)[1]
        if any(one.heads is None or one.heads[0].shape[-1] != plan.head_dim for one in maps):
            return None
        rotation = Rotation(np.asarray(plan.frequencies), plan.turning, plan.pairing)

        def run(ids: Any) -> list[np.ndarray]:
            heads = [one.heads for one in self._chosen_maps(self._traced(ids)[1])[1]]
            return [np.stack(one).swapaxes(2, 3) for one in zip(*heads, strict=True)]

        return (rotation, run) if maps else None

    def hidden(self) -> Program:
        """Program (ids, positions) of the last hidden states `[documents, n, dim]`."""
        return self._last_hidden

    def losses(self) -> Program:
        """Program (ids, positions, frequencies=None) of the losses of all tokens but the first."""

        def run(ids: Any, at: Any, frequencies: RopeFrequencies | None = None) -> np.ndarray:
            losses, ids = [], np.asarray(ids)
            size = max(1, _ENTRIES // (ids.shape[1] * len(self._tokens)))
            with self._rotated(frequencies):
                for rows in (ids[k : k + size] for k in range(0, len(ids), size)):
                    logits = self._run(rows, at).logits[:, :-1].flatten(0, 1)
                    losses.append(self._losses(logits, rows[:, 1:].ravel()))
            return np.concatenate(losses).reshape(len(ids), -1)

        return run

    def masked_losses(self) -> Program:
        """Program (batch, positions) of the mean loss of the masked tokens, `[documents]`."""

        def run(batch: Any, at: Any) -> np.ndarray:
            losses = []
            for k, ids in enumerate(batch["ids"]):
                counted = np.asarray(batch["guessed"][k])
                logits = self._run(ids[None], at).logits[0, batch["places"][k][counted]]
                losses.append(self._losses(logits, batch["targets"][k][counted]).sum())
            return np.array(losses) / np.maximum(batch["guessed"].sum(axis=-1), 1)

        return run

    def answers(self) -> Program:
        """Program (text `[n]`, questions `[count, m]`) of the logits of the next token."""

        def run(text: Any, questions: Any) -> np.ndarray:
            rows = np.stack([np.concatenate([text, question]) for question in questions])
            passes = (self._run(row[None], logits_to_keep=1) for row in rows)
            return np.stack([float_array(found.logits[0, -1]) for found in passes])

        return run

    def unscaled_reason(self, context: int, rope: RopeAnalysis | None) -> str:
        """Reason why no other rotary frequencies are tried; empty if they are."""
        if rope is None or rope.widest is None:
            return without_rotations(context if self._table is not None else None)
        others = {"learned vectors", "bias"} & {*self.encodings}
        if reason := scaling_reason(context, rope, self.sizes.head_width, others=bool(others)):
            return reason
        own = np.asarray(rope.widest.frequencies)
        tables = [float_array(module.inv_freq) for module in self._rotations()]
        if tables and all(x.shape == own.shape and np.allclose(x, own, rtol=1e-4) for x in tables):
            return ""
        return "the model keeps its rotary frequencies in a way that is not known"


def _parameters(model: Any) -> Any:
    """Parameters of a model's forward pass."""
    return inspect.signature(model.forward).parameters


def load_torch(path: Path, *, task: str | None = None) -> TorchModel:
    """Model of a folder or .gguf file, loaded by transformers in float32; no code of it is run.

    Args:
        path: Hugging Face directory, .gguf file, or a folder with one.
        task: "mlm" for an encoder with its head; otherwise decoders alone have theirs.

    Raises:
        InputError: a model that transformers cannot load, or that `TorchModel` refuses.

    >>> load_torch(Path("all-MiniLM-L6-v2")).kind  # doctest: +SKIP
    'encoder'
    """
    torch, transformers = (require(name, extra="torch") for name in ("torch", "transformers"))
    # Without a word on it, transformers asks at the terminal whether to run the code of a folder.
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    if (file := gguf_file(path)) is not None:
        path, options["gguf_file"] = file.parent, file.name
    try:
        config = transformers.AutoConfig.from_pretrained(path, **options)
        names = " ".join(config.architectures or ["CausalLM"])
        head = "ForCausalLM" if re.search("CausalLM|LMHead", names) else ""
        auto = getattr(transformers, f"AutoModel{'ForMaskedLM' if task == 'mlm' else head}")
        model = auto.from_pretrained(path, dtype=torch.float32, use_safetensors=True, **options)
    except (ImportError, KeyError, OSError, ValueError) as error:
        raise InputError(f"transformers cannot load {path}: {reason(error)}") from error
    return TorchModel(model)
