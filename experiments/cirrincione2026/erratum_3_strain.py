"""Erratum 3: Proposition 6 is false; classical MDS minimises the strain, not the stress.

Three one-hot distributions at d = 1 have stress 1/6 by classical MDS at best and 1/9 at the
optimum; on corpora at d = 16 the stress after SMACOF, started from P_MDS, is far below. L-BFGS
through `jax.grad(jaxpe.geometry.stress)` comes to the same minimum, so it is no artefact of the
algorithm.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxpe
from experiments import common
from jaxpe import geometry

DIM, STEPS = 16, 300


def experiment(run: common.Run) -> dict[str, Any]:
    one_hots = geometry.hellinger_distances(np.eye(3))
    rows = {"three_one_hots": minimised(one_hots, 1, run.quick) | one_hot_directions(one_hots)}
    return rows | {name: minimised(D, DIM, run.quick) for name, D in corpora(run).items()}


def one_hot_directions(D: geometry.Distances) -> dict[str, float]:
    """Classical scaling of three one-hots at d = 1 keeps one of two equal eigenvalues.

    So every direction of the plane is a classical solution; its stress runs between these two.
    """
    plane = geometry.classical_mds(D, dim=2).coordinates
    angles = jnp.linspace(0.0, jnp.pi, 361)
    directions = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)
    values = jax.vmap(lambda u: geometry.stress(plane @ u[:, None], D))(directions)
    return {"classical_least": float(values.min()), "classical_most": float(values.max())}


def corpora(run: common.Run) -> dict[str, geometry.Distances]:
    makers = (
        jaxpe.data.three_regimes,
        partial(jaxpe.data.zipf_stationary, documents=5000),
        partial(jaxpe.data.zipf_drift, documents=5000),
    )
    found = {}
    for make in makers[:1] if run.quick else makers:
        corpus = make()
        found[corpus.name] = geometry.count_tokens(
            corpus.ids, vocab_size=corpus.distributions.shape[1]
        )
    if not run.quick:
        found |= common.present(common.real_counts)
    return {name: common.plug_in(counts, empty="drop").D for name, counts in found.items()}


def minimised(D: geometry.Distances, dim: int, quick: bool) -> dict[str, Any]:
    start = common.widened(geometry.classical_mds(D, dim=len(D.present)).coordinates, dim)
    fit = common.refined(D, start, max_iterations=100 if quick else 2000)
    return {
        "dim": dim,
        "classical": float(fit.initial_stress),
        "smacof": float(fit.stress),
        "lbfgs": float(by_lbfgs(D, start, steps=50 if quick else STEPS)),
    }


@partial(jax.jit, static_argnames="steps")
def by_lbfgs(D: geometry.Distances, start: jax.Array, *, steps: int) -> jax.Array:
    """The stress after L-BFGS on its own gradient. D is an argument, never closed over."""
    solver = optax.lbfgs()

    def loss(P: jax.Array) -> jax.Array:
        return geometry.stress(P, D)

    value_and_grad = optax.value_and_grad_from_state(loss)

    def step(_: Any, carry: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        P, state = carry
        value, gradient = value_and_grad(P, state=state)
        updates, state = solver.update(
            gradient, state, P, value=value, grad=gradient, value_fn=loss
        )
        return jnp.asarray(optax.apply_updates(P, updates)), state

    P, _ = jax.lax.fori_loop(0, steps, step, (start, solver.init(start)))
    return loss(P)


if __name__ == "__main__":
    common.main(experiment, "erratum_3_strain")
