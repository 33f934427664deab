"""`jaxpe extrapolate --list`: what can be passed, said without the time that importing JAX takes.

A test holds the names against those that there are.
"""

PRESETS = {
    "quick": "about three minutes: sorting; tells four encodings apart",
    "smoke": "as long: running sums, copying; only tries what there is",
    "paper": "an hour or two: Li (2025), Kazemnejad et al. (2023)",
    "full": "days: the same under all encodings, with larger models",
}
TASKS = {
    "running_sum": "the sum of numbers up to each, from a model that sees all",
    "running_sum_causal": "the same from a model that looks back only",
    "copy": "the words of the input",
    "reverse": "the words, the last first",
    "addition": "the sum of two numbers, digit by digit",
    "sort": "the words in order",
    "parity": "the sum of bits modulo 2",
    "summation": "the sum of digits modulo 10",
    "composition": "what three nested functions make of a string",
    "scan": "the actions that commands ask for",
}
ENCODINGS = {
    "none": "NoPE, no positional encoding; causal attention alone",
    "sinusoidal": "sines and cosines added to the embeddings",
    "learned": "a trained table; undefined beyond T",
    "random": "fixed random vectors added; undefined beyond T",
    "fourier": "cosines and sines of random frequencies, added",
    "low_rank": "a trained table of low rank; undefined beyond T",
    "legendre": "Legendre polynomials of tanh of the position",
    "legendre_clipped": "Legendre polynomials of the position, clipped at T",
    "legendre_log": "Legendre polynomials of the logarithm of the position",
    "chebyshev": "Chebyshev polynomials of the position",
    "cosine": "the orthonormal DCT-II basis",
    "wavelet": "Daubechies-4 wavelets",
    "rope": "rotary: queries and keys turned by the position",
    "rope_partial": "rotary on half of each head",
    "xpos": "rotary, with a decay",
    "rope_linear": "RoPE, positions divided by L/T when tested at L",
    "rope_ntk": "RoPE, its base enlarged for the length (NTK-aware)",
    "rope_dynamic": "RoPE, its base enlarged with the length (dynamic NTK)",
    "rope_ntk_by_parts": "RoPE, slow frequencies divided by 4 (NTK by parts)",
    "rope_yarn": "RoPE, slow frequencies stretched when longer (YaRN)",
    "rope_llama3": "RoPE, long wavelengths divided by 4 (Llama 3.1)",
    "rope_longrope": "RoPE, a divisor a frequency, another beyond T (LongRoPE)",
    "rope_proportional": "RoPE on the fastest three quarters of the frequencies",
    "rope_resonance": "RoPE, wavelengths of whole positions",
    "pope": "magnitudes of content times angles of position",
    "fope": "RoPE, each rotation a sum of waves",
    "grape_m": "RoPE with trained frequencies",
    "rerope": "RoPE, offsets clipped at T/2 when tested beyond T",
    "rerope_leaky": "RoPE, offsets beyond T/2 shrunk below T when longer",
    "self_extend": "RoPE, far positions in groups when tested beyond T",
    "dual_chunk": "RoPE, positions from chunks when tested beyond T",
    "ssmax": "no positions; queries times the logarithm of their number",
    "llama4_scaling": "no positions; queries scaled in steps, as in Llama 4",
    "ministral_scaling": "no positions; queries scaled in steps, as in Ministral 3",
    "alibi": "a bias that falls with the distance, by head",
    "t5": "a trained bias by bucket of distance",
    "kerple_log": "a trained bias, logarithmic in the distance",
    "kerple_power": "a trained bias, a power of the distance",
    "fire": "a trained bias, a function of the relative distance",
    "cope": "contextual positions, counted by gates",
    "shaw": "trained vectors by clipped distance",
    "transformer_xl": "sinusoids by distance, with trained projections",
    "deberta": "trained vectors by bucket of distance, queries and keys",
    "tupe": "trained positions in the logits alone; undefined beyond T",
    "dape": "a bias adapted by a small network to the logits",
    "inkling": "a bias by distance that the hidden state projects",
    "fox": "a gate a token: the bias is the sum of logarithms between",
    "cable": "the same with softplus in place of the gate",
    "grape_a": "ALiBi with slopes that keys choose",
    "path": "products of Householder-like matrices along the tokens",
    "selective_rope": "RoPE with angles that the tokens choose",
    "sliding_window": "no positions; the nearest tokens alone",
    "attention_chunks": "no positions; tokens of the same chunk alone",
    "stick_breaking": "no softmax: each token back takes a share of what is left",
    "smollm3": "RoPE in three of four layers, none in the fourth",
    "llama4": "RoPE in chunks, none in each fourth layer",
    "gemma3": "RoPE in windows, a slower one in each sixth layer",
    "alibi_over_length": "ALiBi with slope 1/T in every head",
}


def text() -> str:
    """The lists as they are printed."""
    width = max(map(len, [*TASKS, *ENCODINGS]))
    parts = []
    lists = ("--preset", PRESETS), ("--tasks", TASKS), ("--encodings", ENCODINGS)
    for flag, names in lists:
        parts += [flag, *(f"  {name:{width}}  {about}" for name, about in names.items()), ""]
    parts.append("Times are of two cores. T is the training length.")
    parts.append("An encoding of your own is passed as my_module:my_encoding.")
    return "\n".join(parts)
