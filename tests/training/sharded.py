"""Training of one small model on meshes of eight devices, each equal to one device.

A script for eight devices. Its argument is a folder for checkpoints.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from jaxpe import encodings, nn, training

ROWS, N, VOCAB = 32, 8, 20
MESHES = {
    "fsdp 8": ((8,), ("fsdp",)),
    "data 2, model 4": ((2, 4), ("data", "model")),
}
EMBEDDING = {
    "fsdp 8": PartitionSpec(None, ("fsdp",)),
    "data 2, model 4": PartitionSpec(("model",), None),
}
IDS = np.random.default_rng(0).integers(0, VOCAB, (ROWS, N)).astype(np.int32)
ARRAYS = {"ids": IDS, "mask": np.ones_like(IDS, bool)}
OPTIMIZER = training.adamw(3e-3, weight_decay=0.01)


def built(mesh=None, dtype=jnp.float64):
    config = nn.TransformerConfig(
        vocab_size=VOCAB, dim=16, num_layers=2, num_heads=4, hidden_dim=32, activation="swiglu",
        dropout=0.1, tie_embeddings=False, param_dtype=jnp.float64, dtype=dtype, scan=True,
        remat=True,
    )  # fmt: skip
    encoding = encodings.chain(encodings.rope(head_dim=4), encodings.alibi(num_heads=4))

    def make(rngs):
        return nn.CausalLM(nn.Decoder(config, encoding=encoding, rngs=rngs), rngs=rngs)

    return nn.init_model(make, seed=0, mesh=mesh)


def first_state(model, mesh=None):
    key = jax.random.key(1)
    return training.init_state(nn.functionalize(model)[1], OPTIMIZER, key=key, mesh=mesh)


def trained(mesh=None, *, steps=4, checkpoints=None, dtype=jnp.float64, share=(0, 1)):
    """State after some steps, and losses of the steps; after 6 steps an evaluation, too."""
    model = built(mesh, dtype)
    apply = nn.functionalize(model)[0]
    step = training.train_step(training.causal_lm(apply), OPTIMIZER, accumulate=2, mesh=mesh)
    data = training.batches(ARRAYS, batch_size=16, seed=0, share=share)
    end = training.fit(first_state(model, mesh), step, data, steps=steps, checkpoints=checkpoints)
    losses = [record["loss"] for record in end.history]
    if steps == 6:
        held_out = training.in_order(ARRAYS, batch_size=16, share=share)
        quiet = training.causal_lm(apply, train=False)
        losses.append(training.evaluate(quiet, end.state.params, held_out, mesh=mesh)["loss"])
    return end.state, losses


def device_bytes(state):
    """Bytes of a state on one device."""
    arrays = jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))
    return sum(array.addressable_shards[0].data.nbytes for array in arrays)


def checked(mesh, one, folder, **options):
    """Train on a mesh, compare, and return the state."""
    with training.Checkpoints(folder) as checkpoints:
        state, losses = trained(mesh, checkpoints=checkpoints, **options)
    np.testing.assert_allclose(losses, one[: len(losses)], rtol=1e-12)
    return state


def resumed(folder, mesh, one):
    """Train on, from a checkpoint of other devices or more processes, and compare."""
    with training.Checkpoints(folder) as checkpoints:
        losses = trained(mesh, steps=6, checkpoints=checkpoints)[1]
    np.testing.assert_allclose(losses, one[-len(losses) :], rtol=1e-12)


def main(folder):
    whole, one = trained(steps=6)
    total = device_bytes(whole)
    for name, (sizes, axes) in MESHES.items():
        mesh = jax.make_mesh(sizes, axes)  # of type Explicit
        state = checked(mesh, one, folder / name)
        share = device_bytes(state) / total
        assert share < (0.4 if "data" in name else 0.2), (name, share)
        table = state.params["decoder"]["tokens"]["embedding"].get_value().sharding.spec
        assert table == EMBEDDING[name], table  # 20 words are not divisible by 8
        print(name, round(share, 3), flush=True)
    resumed(folder / "data 2, model 4", jax.make_mesh((2,), ("fsdp",)), one)
    half = trained(jax.make_mesh((4, 2), ("fsdp", "model")), steps=2, dtype=jnp.bfloat16)[1]
    np.testing.assert_allclose(half, one[:2], rtol=2e-2)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main(Path(sys.argv[1]))
