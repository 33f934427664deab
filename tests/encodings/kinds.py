"""Encodings that stand for others, in laws about hooks and not about what hooks compute."""

from jaxpe.encodings import EncodingSizes, catalogue

SIZES = EncodingSizes(dim=32, num_heads=4, head_dim=8, length=24)


def _kind(entry):
    encoding = entry.first_layer(SIZES)
    hooks = tuple(hook for hook in encoding._fields[1:] if encoding.defines(hook))
    return hooks if "embed" in hooks else (entry.family, hooks)


# One of each set of hooks in each family; all that add vectors to embeddings are one kind.
ONE_OF_EACH_KIND = [*{_kind(e): e.name for e in reversed(catalogue()) if not e.variant_of}.values()]
