"""One pass of a model of transformers in torch: attention, hidden states and tables that it reads.

Attention is read where every class computes it: the argument and the result of the softmax, or the
arguments of `scaled_dot_product_attention`.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import require

_CLOSED = -1e4  # an entry of a mask below it closes a pair
_SHIFT = 1e-3  # difference of two rows of logits that is one number
_SINKS = 8  # columns of a softmax beside the keys, at most


class AttentionMaps(NamedTuple):
    """Attention of one layer, float32 `[documents, heads, n, n]`."""

    inside: tuple[int, ...]  # identities of the modules of lists around it
    logits: np.ndarray
    weights: np.ndarray
    heads: list[np.ndarray] | None = None  # queries and keys, `[documents, heads, n, width]`


class TableRows(NamedTuple):
    """Learned position vectors, and the row of the first position."""

    weight: Any
    first: int


class Watch:
    """Record of one pass of a model: attention, hidden states and tables.

    Args:
        torch: the library.
        shape: shape `[documents, n]` of the token ids.
    """

    def __init__(self, torch: Any, shape: tuple[int, ...]):
        self.torch, self.shape = torch, shape
        self.maps: list[AttentionMaps] = []
        self.head_width = 0
        self._tables: list[TableRows] = []
        self._inside: list[int] = []  # identities of the modules that run
        self._entered: dict[int, list[Any]] = {}  # argument of each call
        self._left: dict[int, list[Any]] = {}
        self._opening = False  # whether closed pairs are open, to see their logits
        self._open: Any = None
        self._dot: Any = None  # logits of queries and keys alone
        self._heads: tuple[Any, ...] = ()  # queries and keys

    def table(self, tokens: Any) -> TableRows | None:
        """Table, as wide as the token embeddings, whose rows were read in order."""
        others = (one for one in self._tables if one.weight is not tokens)
        return next((one for one in others if one.weight.shape[1] == tokens.shape[1]), None)

    @contextlib.contextmanager
    def hooks(self, modules: list[Any]) -> Iterator[None]:
        """Context in which arguments and results of modules are kept."""

        def before(module: Any, args: Any, kwargs: Any) -> None:
            self._inside.append(id(module))
            self._entered.setdefault(id(module), []).append(self._states((args, kwargs)))

        def after(module: Any, args: Any, result: Any) -> None:
            self._inside.pop()
            self._left.setdefault(id(module), []).append(self._states(result))

        handles = [module.register_forward_pre_hook(before, with_kwargs=True) for module in modules]
        handles += [module.register_forward_hook(after) for module in modules]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _states(self, values: Any) -> Any:
        """The first hidden states `[documents, n, dim]` among values; a mean of several streams."""
        if isinstance(values, self.torch.Tensor):
            if values.ndim == 4 and values.is_floating_point():
                own, rest = values.shape[:2], values.shape[1:3]
                if self.shape in (own, rest):
                    values = values.mean(2 if own == self.shape else 0)
            states = values.ndim == 3 and values.shape[:2] == self.shape
            return values if states and values.is_floating_point() else None
        if isinstance(values, dict):
            values = [*values.values()]
        found = map(self._states, values) if isinstance(values, list | tuple) else ()
        return next((one for one in found if one is not None), None)

    def layers(self, model: Any) -> list[Any]:
        """The longest list of modules that each turn hidden states into hidden states, once."""

        def is_layer(module: Any) -> bool:
            entered, left = (x.get(id(module), ()) for x in (self._entered, self._left))
            if len(entered) != 1 or len(left) != 1 or entered[0] is None or left[0] is None:
                return False
            return entered[0].shape == left[0].shape

        around = {identity for one in self.maps for identity in one.inside}
        lists = [[*one] for one in model.modules() if isinstance(one, self.torch.nn.ModuleList)]
        layers = max(
            (
                one
                for one in lists
                if all(map(is_layer, one)) and (not around or around & {*map(id, one)})
            ),
            key=len,
            default=[],
        )
        order = [*self._entered]
        return sorted(layers, key=lambda module: order.index(id(module)))

    def states(self, layers: list[Any], returned: Any) -> list[Any]:
        """Arguments of the layers and the result of the last, or what the model returned."""
        if not layers:
            return [self._states(one) for one in returned or ()]
        return [self._entered[id(one)][0] for one in layers] + [self._left[id(layers[-1])][0]]

    @contextlib.contextmanager
    def interface(self) -> Iterator[None]:
        """Context in which attention functions of transformers are also called without a mask."""
        transformers = require("transformers", extra="torch")
        interface: Any = getattr(transformers, "AttentionInterface", None)
        if not hasattr(interface, "get_interface"):  # an old version
            yield
            return
        original = interface.get_interface
        interface.get_interface = lambda _, name, default: partial(self._attend, default)
        try:
            yield
        finally:
            interface.get_interface = original

    def _attend(self, eager: Callable[..., Any], module: Any, *args: Any, **kwargs: Any) -> Any:
        """Attention of a class, after a call in which closed pairs are open."""
        query, key, value, *rest = args
        self.head_width, named = int(query.shape[-1]), not rest
        mask = kwargs.get("attention_mask") if named else rest[0]
        opened = self._opened(mask)
        if opened is not mask:
            again = kwargs | {"attention_mask": opened} if named else kwargs
            self._opening = True
            eager(module, query, key, value, *([] if named else [opened, *rest[1:]]), **again)
            self._opening = False
        self._heads = query, key
        if (scaling := kwargs.get("scaling")) is not None:
            self._dot = _dot_products(query, key, scaling)
        result = eager(module, *args, **kwargs)
        self._open = self._dot = None
        return result

    def _opened(self, mask: Any) -> Any:
        """A mask that closes nothing; biases in it stay."""
        if not isinstance(mask, self.torch.Tensor):
            return mask
        if not mask.is_floating_point():
            return self.torch.ones_like(mask)
        return mask.masked_fill(mask < _CLOSED, 0)

    def mode(self) -> Any:
        """Context in which every function of torch is seen."""
        watch = self

        class Mode(self.torch.overrides.TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                result = function(*args, **(kwargs or {}))
                watch._see(getattr(function, "__name__", ""), args, kwargs or {}, result)
                return result

        return Mode()

    def _see(self, name: str, args: Any, kwargs: Any, result: Any) -> None:
        """Keep what a function tells of attention or of a table."""
        if name == "softmax":
            self._add(args[0] if args else kwargs["input"], result)
        elif name == "scaled_dot_product_attention":
            self._add(*self._products(*args, **kwargs))
        elif name == "embedding" and len(args) > 1:
            ids, weight = args[:2]
            order = self.torch.arange(self.shape[1], device=ids.device)
            if ids.ndim and ids.shape[-1] == len(order) and not ids.is_floating_point():
                first = int(ids.flatten()[0])
                if bool((ids == first + order).all()):
                    self._tables.append(TableRows(weight, first))

    def _products(
        self, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, **_: Any,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Logits and weights of `scaled_dot_product_attention`."""
        self._heads = query, key
        logits = _dot_products(query, key, query.shape[-1] ** -0.5 if scale is None else scale)
        closed = self.torch.zeros(logits.shape[-2:], dtype=bool, device=logits.device)
        if is_causal:
            closed = (~closed).tril().logical_not()
        if attn_mask is not None and attn_mask.is_floating_point():
            logits, closed = logits + self._opened(attn_mask), closed | (attn_mask < _CLOSED)
        elif attn_mask is not None:
            closed = closed | ~attn_mask
        return logits, logits.masked_fill(closed, -math.inf).softmax(-1)

    def _add(self, logits: Any, weights: Any) -> None:
        """Keep the maps of a layer, if they are over pairs of tokens."""
        documents, n = self.shape
        keys, rows = logits.shape[-1], logits.shape[0]
        pairs = logits.ndim > 2 and logits.shape[-2] == n and n <= keys <= n + _SINKS
        if not pairs or rows % documents or (logits.ndim == 3 and rows == documents):
            return
        if self._opening:
            self._open = logits
            return
        seen = logits if self._open is None else self._open
        if keys > n:
            if self._dot is None or self._dot.shape[-1] != n:
                return  # not sinks after all keys
            apart = seen[..., :n] - self._dot
            if (apart.amax(-1) - apart.amin(-1)).max() < _SHIFT:
                seen = self._dot  # some classes subtract the largest logit of each row
        seen = seen.masked_fill(seen < _CLOSED, 0)
        logits, weights = (
            float_array(one.reshape(documents, -1, n, one.shape[-1])[..., :n])
            for one in (seen, weights)
        )
        shown = [x.ndim == 4 and (x.shape[0], x.shape[2]) == self.shape for x in self._heads]
        heads = [*map(float_array, self._heads)] if shown == [True, True] else None
        self.maps.append(AttentionMaps(tuple(self._inside), logits, weights, heads))
        self._heads = ()


def _dot_products(query: Any, key: Any, scale: float) -> Any:
    """Scaled products of queries and keys; a head of keys serves several of queries."""
    return query @ key.repeat_interleave(query.shape[-3] // key.shape[-3], -3).mT * scale


def listed_modules(model: Any) -> list[Any]:
    """Modules of all lists in a model."""
    lists = (one for one in model.modules() if type(one).__name__ == "ModuleList")
    return [*{id(module): module for one in lists for module in one}.values()]


@contextlib.contextmanager
def eager_attention(model: Any) -> Iterator[None]:
    """Context in which classes compute attention by their own plain code."""
    configs: list[Any] = [getattr(module, "config", None) for module in model.modules()]
    configs = [one for one in configs if hasattr(one, "_attn_implementation_internal")]
    own = [one._attn_implementation_internal for one in configs]
    try:
        for config in configs:
            config._attn_implementation_internal = "eager"
        yield
    finally:
        for config, implementation in zip(configs, own, strict=True):
            config._attn_implementation_internal = implementation


def float_array(tensor: Any) -> np.ndarray:
    """A tensor in float32."""
    return tensor.detach().float().cpu().numpy()
