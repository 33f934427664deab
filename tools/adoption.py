"""Models of three programs that use each encoding: `jaxpe/encodings/adoption.toml`.

    pip download --no-deps transformers vllm sglang
    python tools/adoption.py transformers-*.whl vllm-*.whl sglang-*.whl

In transformers a folder of a model counts where a rule matches its `modeling_*.py` or
`configuration_*.py`; in vLLM and SGLang a file of a model. An encoding that no rule
knows has no count: what a checkpoint chooses, such as YaRN, no file tells, and encodings without an
identifier of their own cannot be searched for. `--names` prints the folders and files.
"""

import collections
import re
import sys
import zipfile
from pathlib import Path

TARGET = Path(__file__).parents[1] / "jaxpe" / "encodings" / "adoption.toml"
_TABLE = r"self\.(?!rel|query)\w*(pos_emb\w*|wpe|embed_positions|position\w*_?embed\w*)"

# Names that occur in no folder for anything else, as regular expressions.
_WORDS = {
    "legendre": r"[Ll]egendre",
    "chebyshev": r"[Cc]hebyshev",
    "wavelet": r"[Ww]avelet",
    "spherical_harmonics": r"spherical_?harmonic",
    "xpos": r"\bxpos\b|X[Pp]os\b",
    "pope": r"\bPoPE|\bpope\b",
    "fope": r"FoPE|\bfope|use_fope",
    "grape_m": r"GRAPE|grape_",
    "grape_a": r"GRAPE|grape_",
    "rerope": r"ReRoPE|\brerope",
    "self_extend": r"self_extend|SelfExtend",
    "dual_chunk": r"dual_chunk|DualChunk",
    "ssmax": r"ssmax|SSMax|scalable_softmax",
    "kerple_log": r"[Kk]erple|KERPLE",
    "kerple_power": r"[Kk]erple|KERPLE",
    "fire": r"\bFIRE\b|FireBias|fire_bias",
    "cope": r"\bCoPE\b|\bcope\b",
    "dape": r"\bDAPE|\bdape",
    "fox": r"[Ff]orgetting_?(Attention|[Tt]ransformer|attention)",
    "cable": r"\bCABLE\b|cable_",
    "path": r"PaTH|path_attention",
    "selective_rope": r"[Ss]elective_?[Rr]o(pe|PE)",
    "directional_rope": r"\bDRoPE\b|[Dd]irectional_?[Rr]o(pe|PE)",
    "carope": r"CARoPE|\bcarope",
}

RULES = {
    "sinusoidal": (
        r"class \w*(Sinusoid|SinePosition)\w*Embedding|(create|get)_sinusoid(al_embedding|_enc)"
    ),
    "learned": rf"{_TABLE}\s*=\s*nn\.(Embedding|Parameter)\(|class \w*LearnedPosition\w*\(",
    "fourier": r"torch\.randn\(\(2, ",
    "rope": r"RotaryEmb|rotary_emb|apply_rotary",
    "rope_partial": r"(?s)\A(?!.*[\"']proportional[\"']).*(partial_rotary_factor|rotary_ndims|"
    r"rotary_dim\b|rotary_pct)",
    "rope_proportional": r"[\"']proportional[\"']",
    "axial_rope": (
        r"class (?!DeepseekOcr2)\w*(VisionRotaryEmb|ViTRotaryEmb|R[oO][pP][eE]PositionEmb)"
    ),
    "mrope": r"mrope_section",
    "llama4_scaling": r"attn_temperature_tuning",
    "ministral_scaling": r"llama_4_scaling_beta",
    "alibi": r"(?i)alibi",
    "t5": r"relative_attention_num_buckets|relative_position_bucket|relative_buckets",
    "shaw": r"== [\"']relative_key",
    "transformer_xl": r"self\.(pos_bias_u|r_r_bias) =|def _?rel_shift",
    "deberta": r"c2p|class DisentangledSelfAttention",
    "inkling": r"class Inkling\w*RelativePositionBias|class InklingRelative\w*",
    "sliding_window": r"sliding_window_causal|sliding_window=(?!None)|bidirectional_sliding",
    "attention_chunks": r"[\"']chunked_attention",
    "smollm3": r"no_rope_layer",
    "llama4": r"attn_temperature_tuning",
    "gemma3": r"[\"']sliding_attention[\"']: \{[\"']rope_",
    **_WORDS,
}


# Sources in a wheel; the first group is the name of the folder or file.
PATHS = {
    "transformers": r"transformers/models/(?!auto/)(\w+)/(?:modeling|configuration)_\w+\.py$",
    "vllm": r"vllm/model_executor/models/(?!_|config|interfaces|registry|utils|adapt)(\w+)\.py$",
    "sglang": r"sglang/srt/models/(?!__|registry|utils)(\w+)\.py$",
}


def model_sources(wheel: Path, path: str) -> dict[str, str]:
    """Source of each folder or file of a wheel whose path matches."""
    sources: dict[str, str] = collections.defaultdict(str)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if match := re.match(path, name):
                sources[match[1]] += archive.read(name).decode()
    return sources


def matches(sources: dict[str, str]) -> dict[str, list[str]]:
    """Names of the sources in which the rule of each encoding matches."""
    return {
        encoding: sorted(name for name, text in sources.items() if re.search(rule, text))
        for encoding, rule in RULES.items()
    }


def main(wheels: list[Path]) -> None:
    lines = ["# Models of programs that use each encoding; made by tools/adoption.py."]
    for wheel in wheels:
        program, version, *_ = wheel.name.split("-")
        sources = model_sources(wheel, PATHS[program])
        found = matches(sources)
        if "--names" in sys.argv:
            for encoding, names in found.items():
                print(f"{program}, {encoding}: {len(names)}: {' '.join(names)}")
        lines += ["", f"[{program}]", f'version = "{version}"', f"models = {len(sources)}"]
        lines += ["", f"[{program}.counts]"]
        lines += [f"{encoding} = {len(names)}" for encoding, names in found.items()]
    TARGET.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:] if not word.startswith("--")])
