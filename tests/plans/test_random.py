"""Files made at random that were once read wrongly, with what transformers 5.24 computes.

Bases and numbers of rotated entries are from models that `AutoModel.from_config` built and ran.
"""

import pytest

SIZES = {
    "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4,
    "max_position_embeddings": 512,
}  # fmt: skip
GPTJ = {"n_embd": 64, "n_head": 4, "n_layer": 2, "rotary_dim": 8, "n_positions": 512}
OTHER = {"rope_type": "default", "rope_theta": 777.0}
BASE = {"rope_type": "default", "rope_theta": 1e6}
YARN = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "rope_theta": 1e6,
}  # fmt: skip
FULL, SLIDING, INDEXED = "full_attention", "sliding_attention", "indexed_attention"

# Model type, fields, and base and rotated entries by kind of layer; None without rotation.
CASES = [
    ("gptj", {**GPTJ, "rope_theta": 100.0}, {FULL: (1e4, 8)}),
    ("codegen", {**GPTJ, "rope_parameters": YARN}, {FULL: (1e4, 8)}),
    ("roformer", {**SIZES, "rope_theta": 100.0}, {FULL: (1e4, 16)}),
    ("esm", {**SIZES, "position_embedding_type": "rotary", "rope_theta": 100.0,
             "rope_parameters": OTHER}, {FULL: (100, 16)}),
    ("gemma3_text", {**SIZES, "head_dim": 16, "rope_parameters": {SLIDING: None, FULL: OTHER},
                     "sliding_window_pattern": 2}, {FULL: (777, 16), SLIDING: (1e4, 16)}),
    ("gemma3_text", {**SIZES, "head_dim": 16, "rope_parameters": {SLIDING: OTHER, FULL: None},
                     "sliding_window_pattern": 2}, {FULL: (1e6, 16), SLIDING: (777, 16)}),
    ("olmo3", {**SIZES, "rope_parameters": {SLIDING: None, FULL: OTHER}},
     {FULL: (777, 16), SLIDING: (500_000, 16)}),
    ("beam", {**SIZES, "head_dim": 16, "rope_scaling": {FULL: OTHER, SLIDING: BASE}},
     {FULL: (777, 16), SLIDING: (1e6, 16)}),
    ("mimo_v2_flash", {**SIZES, "head_dim": 24, "rope_parameters": {FULL: YARN, SLIDING: OTHER}},
     {FULL: (1e6, 24), SLIDING: (777, 8)}),
    ("dots3_note_text", {**SIZES, "qk_rope_head_dim": 8},
     {INDEXED: (8e7, 8), f"{INDEXED}, indexer": (8e7, 8), SLIDING: (5e4, 64)}),
    ("dots3_note_text", {**SIZES, "swa_head_dim": 32, "swa_qk_nope_head_dim": 20},
     {INDEXED: (8e7, 64), f"{INDEXED}, indexer": (8e7, 64), SLIDING: (5e4, 12)}),
    ("jetmoe", {**SIZES, "head_dim": 8, "kv_channels": 16}, {FULL: (1e4, 8)}),
    ("olmo_hybrid", SIZES, {"linear_attention": None, FULL: (1e4, 16)}),
    ("olmo_hybrid", {**SIZES, "rope_parameters": {FULL: None, "linear_attention": OTHER}},
     {"linear_attention": None, FULL: None}),
    ("olmo_hybrid", {**SIZES, "rope_theta": None}, {"linear_attention": None, FULL: None}),
    ("nemotron_h", {**SIZES, "hybrid_override_pattern": "M*M*", "rope_parameters": {FULL: OTHER}},
     {"linear_attention": None, FULL: None}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model_type", "fields", "expected"), CASES, ids=[f"{i} {c[0]}" for i, c in enumerate(CASES)]
)
def test_random_files(explain, model_type, fields, expected):
    found = explain({"model_type": model_type, **fields})
    assert found.programs[0].problem is None
    plans = {one.name: (one.base, one.turning) if one.turning else None for one in found.groups}
    assert plans == expected


@pytest.mark.parametrize(
    ("model_type", "ignored"),
    [("roformer", {"rope_theta": 100.0}), ("codegen", {"rope_parameters": YARN})],
)
def test_what_a_class_ignores_is_named(explain, model_type, ignored):
    found = explain({"model_type": model_type, **SIZES, **ignored})
    assert found.unread == (*ignored,)


def test_a_name_of_all_models_precedes_the_name_of_a_class(explain):
    found = explain({"model_type": "gptj", **GPTJ, "num_hidden_layers": 3})
    assert found.groups[0].layers == (0, 1, 2)
    found = explain({"model_type": "exaone", **SIZES, "num_layers": 3})
    assert found.groups[0].layers == (0, 1, 2)
