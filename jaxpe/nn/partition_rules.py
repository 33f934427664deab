"""Division of the parameters of a model over the axes of a mesh, by their names."""

import math
import re
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxpe._core.arrays import auto_mesh

Axes = tuple[str | tuple[str, ...] | None, ...]

# Names of parameters, and the axes that divide their last dimensions. Of the matching rules, the
# first with the most axes counts: a vocabulary may not be divisible. Outputs of the first layer of
# a sublayer are divided over "model", and inputs of its last one, so that one sum is exchanged.
_RULES: tuple[tuple[str, Axes], ...] = (
    (r"attention/output/kernel|mlp/(\w+/)?down/kernel", ("model", "fsdp")),
    (r"(attention/(query|key|value|gate)|mlp/(\w+/)?(gate|up)|\boutput)/kernel", ("fsdp", "model")),
    (r"(attention/(query|key|value|gate)|mlp/(\w+/)?(gate|up))/bias", ("model",)),
    (r"tokens/embedding", (("model", "fsdp"), None)),  # so that embeddings have whole vectors
    (r"tokens/embedding", ("model", "fsdp")),
    (r"kernel|embedding\b", ("fsdp", None)),
)


def partition_rules(model: Any, mesh: Mesh) -> Any:
    """Sharding of each parameter of a model of `jaxpe.nn`, for `jax.device_put`.

    The axis "fsdp" of the mesh divides every matrix, so that memory falls with its size, as in
    fully sharded data parallelism (Zhao et al., 2023). The axis "model" divides heads, hidden
    widths and the vocabulary, as in Megatron (Shoeybi et al., 2019). Each may be absent. Norms,
    most biases and encodings are on every device, and so is an axis of an array that the axis of
    the mesh does not divide. Other axes of the mesh, such as "data", divide batches alone.

    Args:
        model: model, or its parameters from `functionalize`, or their shapes.
        mesh: mesh of devices.

    Returns:
        pytree of `NamedSharding`, like the parameters.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=50, dim=16, num_layers=2, num_heads=4)
    >>> decoder = nn.Decoder(config, encoding=encodings.identity(), rngs=nnx.Rngs(0))
    >>> apply, params = nn.functionalize(nn.CausalLM(decoder, rngs=nnx.Rngs(1)))
    >>> rules = nn.partition_rules(params, jax.make_mesh((1, 1), ("fsdp", "model")))
    >>> rules["decoder"]["layers"]["mlp"]["down"]["kernel"].get_value().spec
    P(None, 'model', 'fsdp')
    >>> params = jax.device_put(params, rules)
    """
    params = nnx.state(model, nnx.Param) if isinstance(model, nnx.Module) else model
    mesh = auto_mesh(mesh)

    def sharding(path: tuple[Any, ...], x: Any) -> NamedSharding:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        specs = [_spec(axes, x.shape, mesh) for pattern, axes in _RULES if re.search(pattern, name)]
        chosen = max(specs, key=lambda s: len(jax.tree.leaves(tuple(s))), default=PartitionSpec())
        return NamedSharding(mesh, chosen)

    return jax.tree_util.tree_map_with_path(sharding, params)


def _spec(axes: Axes, shape: tuple[int, ...], mesh: Mesh) -> PartitionSpec:
    """Axes of the last dimensions, without axes that the mesh lacks or that do not divide."""
    lead = len(shape) - len(axes)
    present = [
        tuple(name for name in jax.tree.leaves(axis) if name in mesh.axis_names) for axis in axes
    ]
    divided = [
        names if size % math.prod(mesh.shape[name] for name in names) == 0 else ()
        for names, size in zip(present, shape[lead:], strict=True)
    ]
    return PartitionSpec(*[None] * lead, *(names or None for names in divided))
