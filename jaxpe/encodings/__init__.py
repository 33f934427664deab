"""Positional encodings: tuples of pure functions that compose, and the plain functions in them."""

import jaxpe.encodings.families  # noqa: F401 (in the order of the catalogue)
from jaxpe.encodings.analysis.distances import encoding_distances
from jaxpe.encodings.analysis.properties import encoding_properties
from jaxpe.encodings.attention import attend
from jaxpe.encodings.attention_mask import AttentionMask
from jaxpe.encodings.attention_terms import attention_logits, attention_weights
from jaxpe.encodings.base import Encoding, Rows, identity, position_offsets
from jaxpe.encodings.cached_keys import rotate_by
from jaxpe.encodings.combine import (
    LayerPattern,
    chain,
    interleaved_layers,
    per_head,
    scale_positions,
)
from jaxpe.encodings.entries import catalogue
from jaxpe.encodings.families.absolute import (
    fourier,
    from_matrix,
    from_vectors,
    information_optimal,
    learned,
    low_rank,
    random_fixed,
    random_vectors,
    sinusoidal,
    sinusoidal_vectors,
)
from jaxpe.encodings.families.bias import alibi, alibi_line, cope, fire, kerple, t5
from jaxpe.encodings.families.context_extension import dual_chunk, rerope, self_extend
from jaxpe.encodings.families.data_dependent import (
    cable,
    carope,
    fox,
    grape_additive,
    path_attention,
    selective_rope,
)
from jaxpe.encodings.families.disentangled import dape, deberta, inkling
from jaxpe.encodings.families.learned_frequencies import fope, grape_multiplicative, pope
from jaxpe.encodings.families.logarithmic import (
    log_position,
    power_positions,
    warp_positions,
)
from jaxpe.encodings.families.masks import attention_chunks, sliding_window
from jaxpe.encodings.families.orthogonal import (
    chebyshev,
    chebyshev_vectors,
    cosine,
    cosine_vectors,
    legendre,
    legendre_vectors,
    spherical_harmonic_vectors,
    spherical_harmonics,
    wavelet,
    wavelet_vectors,
)
from jaxpe.encodings.families.relative import shaw, transformer_xl
from jaxpe.encodings.families.rotary import (
    axial_rope,
    convert_rotary_layout,
    directional_rope,
    mrope,
    rope,
    rope_frequencies,
    rope_from_hf,
    rotary_orbit,
    xpos,
)
from jaxpe.encodings.families.temperature import position_temperature, ssmax
from jaxpe.encodings.families.vector_files import from_file
from jaxpe.encodings.layer_patterns import gemma3, llama4, smollm3
from jaxpe.encodings.registry import CatalogueEntry, EncodingSizes, register
from jaxpe.encodings.scalings import ResonanceScaling
from jaxpe.plans.scaling import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    NtkByPartsScaling,
    NtkScaling,
    ProportionalScaling,
    YarnScaling,
    inverse_frequencies,
)

__all__ = [
    "AttentionMask", "CatalogueEntry", "DynamicScaling", "Encoding", "EncodingSizes",
    "LayerPattern", "LinearScaling", "Llama3Scaling", "LongRopeScaling", "NtkByPartsScaling",
    "NtkScaling", "ProportionalScaling", "ResonanceScaling", "Rows", "YarnScaling", "alibi",
    "alibi_line", "attend", "attention_chunks", "attention_logits", "attention_weights",
    "axial_rope", "cable", "carope", "catalogue", "chain", "chebyshev", "chebyshev_vectors",
    "convert_rotary_layout", "cope", "cosine", "cosine_vectors", "dape", "deberta",
    "directional_rope", "dual_chunk", "encoding_distances", "encoding_properties", "fire",
    "fope", "fourier", "fox", "from_file", "from_matrix", "from_vectors", "gemma3",
    "grape_additive", "grape_multiplicative", "identity", "information_optimal", "inkling",
    "interleaved_layers", "inverse_frequencies", "kerple", "learned", "legendre",
    "legendre_vectors", "llama4", "log_position", "low_rank", "mrope", "path_attention",
    "per_head", "pope", "position_offsets", "position_temperature", "power_positions",
    "random_fixed", "random_vectors", "register", "rerope", "rope", "rope_frequencies",
    "rope_from_hf", "rotary_orbit", "rotate_by", "scale_positions", "selective_rope",
    "self_extend", "shaw", "sinusoidal", "sinusoidal_vectors", "sliding_window", "smollm3",
    "spherical_harmonic_vectors", "spherical_harmonics", "ssmax", "t5", "transformer_xl",
    "warp_positions", "wavelet", "wavelet_vectors", "xpos",
]  # fmt: skip
