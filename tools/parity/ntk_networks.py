"""Networks in plain JAX, for both sides of a comparison of kernels: no library is imported but JAX.

Each is `apply(params, x) -> [batch, outputs]`; `build` draws its parameters and inputs with NumPy,
so that both sides have the same.
"""

import jax
import jax.numpy as jnp
import numpy as np

SMALL = {
    "mlp": {"inputs": 6, "width": 16, "outputs": 3},
    "cnn": {"side": 6, "channels": 4, "outputs": 3},
    "transformer": {"vocab": 11, "length": 5, "width": 8, "heads": 2, "outputs": 3},
}


def build(name: str, *, batches: tuple[int, ...], seed: int = 0, **sizes: int):
    """`(apply, params, inputs)`: float32 parameters, one array of inputs for each batch size."""
    rng = np.random.default_rng(seed)
    shapes, example = {"mlp": _mlp, "cnn": _cnn, "transformer": _transformer}[name](
        **(SMALL[name] | sizes)
    )
    params = {key: _draw(rng, key, shape) for key, shape in shapes.items()}
    return APPLY[name], params, [example(rng, n) for n in batches]


def mlp(params, x):
    """Three hidden layers with tanh."""
    for layer in "123":
        x = jnp.tanh(x @ params[f"w{layer}"] + params[f"b{layer}"][None])
    return x @ params["w_out"] + params["b_out"][None]


def cnn(params, x):
    """Two convolutions of 3 × 3 with ReLU, the second in steps of 2, the mean, and a read-out."""
    for layer, stride in (("1", 1), ("2", 2)):
        x = jax.lax.conv_general_dilated(
            x,
            params[f"w{layer}"],
            window_strides=(stride, stride),
            padding="SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        x = jax.nn.relu(x + params[f"b{layer}"][None, None, None])
    return x.mean((1, 2)) @ params["w_out"] + params["b_out"][None]


def transformer(params, ids):
    """One block with norms before, learned positions, the mean of tokens, and a read-out."""
    x = params["table"][ids] + params["positions"][None]
    y = _normed(x, params["scale1"])
    q, k, v = (jnp.einsum("bnd,dhe->bnhe", y, params[w]) for w in ("w_q", "w_k", "w_v"))
    logits = jnp.einsum("bnhe,bmhe->bhnm", q, k) * q.shape[-1] ** -0.5
    heads = jnp.einsum("bhnm,bmhe->bnhe", jax.nn.softmax(logits), v)
    x = x + jnp.einsum("bnhe,hed->bnd", heads, params["w_o"])
    y = _normed(x, params["scale2"])
    x = x + jax.nn.gelu(y @ params["w1"] + params["b1"][None, None]) @ params["w2"]
    return x.mean(1) @ params["w_out"] + params["b_out"][None]


APPLY = {"mlp": mlp, "cnn": cnn, "transformer": transformer}


def _normed(x, scale):
    x = x - x.mean(-1, keepdims=True)
    return scale[None, None] * x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)


def _draw(rng, key, shape):
    """Of variance 1/inputs; biases and scales away from 0 and 1."""
    if key.startswith(("b", "scale")):
        return (key.startswith("scale") + 0.3 * rng.standard_normal(shape)).astype(np.float32)
    inputs = {"w_o": np.prod(shape[:-1]), "table": 1, "positions": 1}.get(key)
    if inputs is None:
        inputs = shape[0] if key in ("w_q", "w_k", "w_v") else np.prod(shape[:-1])
    return (rng.standard_normal(shape) / np.sqrt(inputs)).astype(np.float32)


def _mlp(*, inputs, width, outputs):
    shapes = {"w1": (inputs, width), "w_out": (width, outputs), "b_out": (outputs,)}
    shapes |= {"w2": (width, width), "w3": (width, width)}
    shapes |= {f"b{layer}": (width,) for layer in "123"}
    return shapes, lambda rng, n: rng.standard_normal((n, inputs)).astype(np.float32)


def _cnn(*, side, channels, outputs):
    shapes = {
        "w1": (3, 3, 3, channels),
        "b1": (channels,),
        "w2": (3, 3, channels, channels),
        "b2": (channels,),
        "w_out": (channels, outputs),
        "b_out": (outputs,),
    }
    return shapes, lambda rng, n: rng.standard_normal((n, side, side, 3)).astype(np.float32)


def _transformer(*, vocab, length, width, heads, outputs):
    shapes = {"table": (vocab, width), "positions": (length, width)}
    shapes |= dict.fromkeys(("w_q", "w_k", "w_v"), (width, heads, width // heads))
    shapes |= {
        "w_o": (heads, width // heads, width),
        "scale1": (width,),
        "scale2": (width,),
        "w1": (width, 4 * width),
        "b1": (4 * width,),
        "w2": (4 * width, width),
        "w_out": (width, outputs),
        "b_out": (outputs,),
    }
    return shapes, lambda rng, n: rng.integers(0, vocab, (n, length), dtype=np.int32)
