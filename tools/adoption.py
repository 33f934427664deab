"""Model folders of transformers that use each encoding: `jaxpe/encodings/adoption.toml`.

    pip download --no-deps transformers
    python tools/adoption.py transformers-*.whl

A folder counts where a rule matches its `modeling_*.py` or `configuration_*.py`. An encoding that
no rule knows has no count: what a checkpoint chooses, such as YaRN, no folder tells, and encodings
without an identifier of their own cannot be searched for. `--folders` prints the folders.
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
    "mixed_rope": r"rope_?mixed|mixed_?rope|RopeMixed",
    "liere": r"[Ll]ieR[oE]|\bliere",
    "comrope": r"ComRoPE|com_?rope",
    "pope": r"\bPoPE|\bpope\b",
    "fope": r"FoPE|\bfope",
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
    "tupe": r"\bTUPE|\btupe",
    "dape": r"\bDAPE|\bdape",
    "fox": r"[Ff]orgetting_?(Attention|[Tt]ransformer|attention)",
    "cable": r"\bCABLE\b|cable_",
    "path": r"PaTH|path_attention",
    "selective_rope": r"[Ss]elective_?[Rr]o(pe|PE)",
    "directional_rope": r"\bDRoPE\b|[Dd]irectional_?[Rr]o(pe|PE)",
    "golden_gate": r"GoldenGate|golden_gate_ro",
    "carope": r"CARoPE|\bcarope",
    "tapa": r"\bTAPA\b|TokenAwarePhase",
    "stick_breaking": r"[Ss]tick_?-?[Bb]reaking",
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


def model_sources(wheel: Path) -> tuple[str, dict[str, str]]:
    """The version of transformers in a wheel, and the source of each of its model folders."""
    sources: dict[str, str] = collections.defaultdict(str)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            path = re.match(r"transformers/models/(\w+)/(modeling|configuration)_\w+\.py$", name)
            if path and path[1] != "auto":
                sources[path[1]] += archive.read(name).decode()
    return wheel.name.split("-")[1], sources


def folders(sources: dict[str, str]) -> dict[str, list[str]]:
    """The folders in which the rule of each encoding matches."""
    rules = {name: re.compile(rule) for name, rule in RULES.items()}
    return {
        name: sorted(folder for folder, text in sources.items() if rule.search(text))
        for name, rule in rules.items()
    }


def main(wheel: Path) -> None:
    version, sources = model_sources(wheel)
    matches = folders(sources)
    if "--folders" in sys.argv:
        for name, matched in matches.items():
            print(f"{name}: {len(matched)}: {' '.join(matched)}")
    lines = [
        "# Model folders of transformers that use each encoding; made by tools/adoption.py.",
        f'version = "{version}"',
        f"folders = {len(sources)}",
        "",
        "[counts]",
        *(f"{name} = {len(matched)}" for name, matched in matches.items()),
    ]
    TARGET.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
