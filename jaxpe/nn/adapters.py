"""Attention functions for the attention layers of Flax."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike
from jaxpe.encodings import AttentionMask, Encoding, attend
from jaxpe.encodings.attention_mask import combined_masks
from jaxpe.encodings.attention_terms import Keys, Queries
from jaxpe.encodings.base import Params
from jaxpe.encodings.implementations import Implementation


class attention_fn(nnx.Module):  # noqa: N801 (called like a function)
    """Attention with an encoding, for the argument `attention_fn` of Flax's attention layers.

    These are `nnx.MultiHeadAttention` and `linen.MultiHeadDotProductAttention`. The result is
    `jaxpe.encodings.attend` of their queries, keys and values, in memory linear in the length.
    Queries whose keys are all masked give 0; Flax averages all values.

    The function is an `nnx.Module` that holds the encoding's parameters. They belong to the state
    of the NNX layer and are trained with it. Layers share them if all get one `nnx.Param`. In
    Linen, make the function inside the module, with `self.param("encoding", encoding.init)`.

    Args:
        encoding: an encoding that acts in attention; your model applies one that embeds.
        params: parameters of the encoding, or an `nnx.Param` of them; None where it has none.
        positions: positions of the tokens, `[..., n]`; the index in the row when None. The method
            `at` replaces them for a batch.
        k_positions: positions of keys, in cross-attention.
        decode: whether a single query among more keys is the newest token of Flax's cache. Its
            slot is the last one that the mask allows; `positions` are those of all slots.
        implementation, block_size: arguments of `jaxpe.encodings.attend`.

    Raises:
        ValueError: an encoding that needs embeddings or hidden states, or has parameters that are
            not passed.

    >>> from flax import nnx
    >>> t5 = jaxpe.encodings.t5(num_heads=2)
    >>> function = jaxpe.nn.attention_fn(t5, t5.init(jax.random.key(0)))
    >>> layer = nnx.MultiHeadAttention(
    ...     2, 8, attention_fn=function, decode=False, rngs=nnx.Rngs(0))
    >>> params = nnx.state(layer, nnx.Param)["attention_fn"]["encoding_params"]
    >>> params.get_value()["table"].shape
    (32, 2)
    >>> with layer.attention_fn.at(jnp.arange(5) + 100):  # positions of this batch
    ...     layer(jnp.ones((3, 5, 8), jnp.float32), is_causal=True).shape
    (3, 5, 8)
    """

    def __init__(
        self,
        encoding: Encoding,
        params: Params | nnx.Variable = None,
        positions: ArrayLike | None = None,
        *,
        k_positions: ArrayLike | None = None,
        decode: bool = False,
        implementation: Implementation | None = None,
        block_size: int = 128,
    ):
        for hook in ("embed", "context"):
            if encoding.defines(hook):
                raise ValueError(f"the encoding defines `{hook}`: call it in your own attention")
        if params is None and encoding.defines("init"):
            raise ValueError("the encoding has parameters: pass params=encoding.init(key)")
        if not isinstance(params, nnx.Variable) and jax.tree.leaves(params):
            params = nnx.Param(params)
        self.encoding = nnx.static(encoding)
        self.encoding_params = nnx.data(() if params is None else params)
        # Arrays cannot be static, functions can.
        self.positions = nnx.static(lambda: (positions, k_positions))
        self.decode, self.implementation, self.block_size = decode, implementation, block_size

    @contextlib.contextmanager
    def at(self, positions: ArrayLike, k_positions: ArrayLike | None = None) -> Iterator[None]:
        """Context manager in which tokens have other positions, such as those of a batch.

        Args:
            positions, k_positions: arguments of `attention_fn`.
        """
        before = self.positions
        self.positions = nnx.static(lambda: (positions, k_positions))
        try:
            yield
        finally:
            self.positions = nnx.static(before)

    def __call__(
        self,
        query: Queries,
        key: Keys,
        value: Keys,
        *,
        mask: ArrayLike | None = None,
        is_causal: bool = False,
        input_positions: ArrayLike | None = None,
        broadcast_dropout: bool = True,
        dropout_rng: Array | None = None,
        dropout_rate: float = 0.0,
        deterministic: bool = False,
        dtype: Any = None,
        precision: Any = None,
        module: Any = None,
        qk_attn_weights_einsum: Any = None,
        attn_weights_value_einsum: Any = None,
    ) -> Float[Array, "... n_q heads head_dim"]:
        """Attention of queries to keys.

        Args:
            query, key, value: `[..., n, heads, head_dim]`, before the encoding acts.
            mask: true, or not 0, where a query may attend, `[..., heads, n_q, n_k]`.
            is_causal: whether queries ignore later keys of the row.
            input_positions: positions of this call, in place of the function's.
            broadcast_dropout, dropout_rng, dropout_rate, deterministic: dropout of weights, as in
                Flax, with other random bits.
            dtype: dtype of queries, keys and values; sums are float32 or wider.
            precision, module, qk_attn_weights_einsum, attn_weights_value_einsum: arguments of Flax
                that raise unless None.
        """
        if precision is not None:
            raise ValueError(f"precision={precision}: set jax.default_matmul_precision instead")
        if module is not None:
            raise ValueError("sow_weights needs weights of all pairs, which are not stored")
        if qk_attn_weights_einsum is not None or attn_weights_value_einsum is not None:
            raise ValueError("attention_fn has products of its own: pass no einsum to the layer")
        if deterministic or dropout_rate == 0.0:
            dropout_rng = None
        elif dropout_rng is None:
            raise ValueError(f"dropout_rate={dropout_rate} needs a key: pass dropout_rng")
        q, k, v = (x if dtype is None else jnp.asarray(x, dtype) for x in (query, key, value))
        allowed = None if mask is None else jnp.asarray(mask, bool)  # Flax makes floats
        i, j = self._positions(q.shape[-3], k.shape[-3], allowed, input_positions)
        if is_causal and not (self.decode and q.shape[-3] == 1):  # no slot is later than the newest
            order = np.arange(max(q.shape[-3], k.shape[-3]), dtype=np.int32)
            causal = AttentionMask(order[: q.shape[-3]], order[: k.shape[-3]])
            allowed = causal if allowed is None else combined_masks(allowed, causal.pairs())
        params = self.encoding_params
        params = params.get_value() if isinstance(params, nnx.Variable) else params
        return attend(
            self.encoding, params, q, k, v, q_positions=i, k_positions=j, mask=allowed,
            dropout_rate=dropout_rate, dropout_key=dropout_rng,
            broadcast_dropout=broadcast_dropout, implementation=self.implementation,
            block_size=self.block_size,
        )  # fmt: skip

    def _positions(
        self, n_q: int, n_k: int, mask: Array | None, positions: ArrayLike | None
    ) -> tuple[ArrayLike, ArrayLike]:
        """Positions of queries and of keys."""
        i, j = self.positions()
        i = i if positions is None else positions
        row = jnp.arange(n_k, dtype=jnp.int32) if i is None else jnp.asarray(i)
        if j is None and n_q == n_k:
            i = j = row
        elif j is None and self.decode and n_q == 1 and mask is not None and row.shape[-1] == n_k:
            j = jnp.broadcast_to(row, (*mask.shape[:-3], n_k))
            from_end = jnp.argmax(jnp.any(mask, axis=-3)[..., ::-1], axis=-1)  # for any head
            i = jnp.take_along_axis(j, n_k - 1 - from_end, axis=-1)
        if i is None or j is None:
            raise ValueError(
                f"{n_q} queries and {n_k} keys: pass attention_fn positions and k_positions, or "
                f"decode=True for the newest token of a cache, with positions of its {n_k} slots"
            )
        return i, j
