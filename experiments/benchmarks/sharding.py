"""Training on meshes of devices: the losses of one device, memory of each, and restoring elsewhere.

    python -m experiments.benchmarks.sharding [--quick] [--save]

A decoder of 4 layers, 256 wide, is trained for 20 steps in float64 with dropout: on one device, on
eight, on meshes that divide its parameters, and in two processes of four devices. Devices are those
of a CPU that XLA divides. Bytes of a device are its part of the state, and what the compiled step
allocates besides. Each checkpoint is then restored on other devices, for 5 more steps.
"""

import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from experiments.benchmarks import _contest as contest
from jaxpe import nn, training
from jaxpe._core.arrays import auto_mesh
from jaxpe.training.step import Step

STEPS, MORE, ROWS, BATCH = 20, 5, 64, 16


class Setup(NamedTuple):
    """Axes of a mesh, by size, and the number of processes that share it."""

    axes: dict[str, int]
    processes: int = 1


SETUPS = {
    "one device": Setup({}),
    "data 8": Setup({"data": 8}),
    "data 2 × model 4": Setup({"data": 2, "model": 4}),
    "fsdp 8": Setup({"fsdp": 8}),
    "fsdp 2 × model 4": Setup({"fsdp": 2, "model": 4}),
    "two processes, fsdp 8": Setup({"fsdp": 8}, processes=2),
    "data 2": Setup({"data": 2}),
}
RESTORED = (
    ("one device", "data 8"),
    ("data 8", "data 2"),
    ("fsdp 8", "data 2 × model 4"),
    ("two processes, fsdp 8", "one device"),
    ("one device", "two processes, fsdp 8"),
)


def trained(setup: Setup, folder: Path, steps: int, quick: bool) -> dict[str, Any]:
    """Losses, and bytes of the first device, of a run that a checkpoint in the folder continues."""
    vocab, n = (64, 8) if quick else (1024, 64)
    config = nn.TransformerConfig(
        vocab_size=vocab, dim=64 if quick else 256, num_layers=4, num_heads=8, dropout=0.1,
        activation="swiglu", norm="rms", param_dtype=jnp.float64, dtype=jnp.float64,
    )  # fmt: skip
    rope = jaxpe.rope(head_dim=config.head_width)

    def make(rngs: Any) -> nn.CausalLM:
        return nn.CausalLM(nn.Decoder(config, encoding=rope, rngs=rngs), rngs=rngs)

    mesh = jax.make_mesh(tuple(setup.axes.values()), tuple(setup.axes)) if setup.axes else None
    apply, params = nn.functionalize(nn.init_model(make, seed=0, mesh=mesh))
    loss, optimizer = training.causal_lm(apply), training.adamw(1e-3, weight_decay=0.01)
    state = training.init_state(params, optimizer, key=jax.random.key(1), mesh=mesh)
    ids = np.random.default_rng(0).integers(0, vocab, (ROWS, n)).astype(np.int32)
    share = jax.process_index(), jax.process_count()
    batches = training.batches(
        {"ids": ids, "mask": np.ones_like(ids, bool)}, batch_size=BATCH, seed=0, share=share
    )
    arrays = jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))
    held = sum(array.addressable_shards[0].data.nbytes for array in arrays)
    found: dict[str, Any] = {"state_bytes": held, "temporary_bytes": None}
    if share[1] == 1:
        batch = next(iter(batches))
        if mesh is not None:
            axes = tuple(name for name in ("data", "fsdp") if name in setup.axes)
            rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(axes))
            batch = jax.device_put(batch, rows)
        memory = program_memory(training.step_function(loss, optimizer), state, batch)
        found["temporary_bytes"] = memory
    step = training.train_step(loss, optimizer, mesh=mesh)
    with training.Checkpoints(folder) as checkpoints:
        end = training.fit(state, step, batches, steps=steps, checkpoints=checkpoints)
    return found | {"losses": [record["loss"] for record in end.history]}


def program_memory(step: Step, state: training.TrainState, batch: Any) -> int:
    """Bytes that the program of a step allocates on each device besides its arguments."""
    state, batch = jax.tree.map(automatic, (state, batch))
    compiled: Any = jax.jit(step, donate_argnums=0).lower(state, batch).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def automatic(x: Any) -> Any:
    """An array on a mesh whose axes are of type Auto."""
    sharding = getattr(x, "sharding", None)
    if not isinstance(sharding, jax.sharding.NamedSharding):
        return x
    mesh = auto_mesh(sharding.mesh)
    return jax.device_put(x, jax.sharding.NamedSharding(mesh, sharding.spec))


def run(name: str, folder: Path, steps: int, quick: bool) -> dict[str, Any]:
    """A setup in processes of its own; what its first process found."""
    setup = SETUPS[name]
    devices = max(1, np.prod([*setup.axes.values()], dtype=int)) // setup.processes
    flags = f"--xla_force_host_platform_device_count={devices}"
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    words = [sys.executable, "-m", "experiments.benchmarks.sharding", "--worker", name]
    words += ["--folder", str(folder), "--steps", str(steps), "--address", address]
    started = [
        subprocess.Popen(
            [*words, "--process", str(process), *["--quick"] * quick],
            stdout=subprocess.PIPE, text=True, cwd=contest.ROOT,
            env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        )
        for process in range(setup.processes)
    ]  # fmt: skip
    told = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        sys.exit(f"{name} ended early")
    return json.loads(told[0].splitlines()[-1])


def work(options: Any) -> None:
    """A process of a setup; prints what it found."""
    jax.config.update("jax_enable_x64", True)
    setup = SETUPS[options.worker]
    if setup.processes > 1:
        jax.distributed.initialize(options.address, setup.processes, options.process)
    found = trained(setup, Path(options.folder), options.steps, options.quick)
    print(json.dumps(found), flush=True)


def main() -> None:
    more = {"worker": "", "folder": "", "steps": STEPS, "address": "", "process": 0}
    options = contest.options_of(__doc__, **more)
    if options.worker:
        return work(options)
    result: dict[str, Any] = {"machine": contest.machine("flax", "optax", "orbax-checkpoint")}
    with tempfile.TemporaryDirectory() as folder:
        start = partial(run, quick=options.quick)
        setups = {name: start(name, Path(folder) / name, STEPS) for name in SETUPS}
        one = setups["one device"]["losses"]
        for name, found in setups.items():
            losses = found.pop("losses")
            found["largest_difference"] = contest.largest_error(np.array(losses), np.array(one))
            print(name, found, flush=True)
        whole = start("one device", Path(folder) / "longer", STEPS + MORE)["losses"]
        restored = {}
        for number, (before, after) in enumerate(RESTORED):
            copy = Path(folder) / f"copy {number}"
            subprocess.run(["cp", "-r", str(Path(folder) / before), str(copy)], check=True)
            losses = start(after, copy, STEPS + MORE)["losses"]
            error = contest.largest_error(np.array(losses), np.array(whole[-len(losses) :]))
            restored[f"{before} → {after}"] = error
            print(before, "→", after, error, len(losses), flush=True)
    result |= {"losses": one, "setups": setups, "restored": restored}
    differences = [found["largest_difference"] for found in setups.values()]
    result["largest_difference"] = max(itertools.chain(differences, restored.values()))
    contest.finish("sharding", options, result)


if __name__ == "__main__":
    main()
