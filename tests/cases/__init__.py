"""One table of public functions with example arguments.

A row of CASES is a function of arrays: `tests/test_transforms.py` crosses it with every transform.
A row of CALLS is called twice, and compiles once.
"""

import importlib
import inspect

import jaxpe
from tests.cases import calls, nn, theory, training
from tests.cases.base import Call as Call
from tests.cases.base import Case as Case
from tests.cases.base import N as N
from tests.cases.geometry import GEOMETRY
from tests.cases.ntk import NTK as NTK
from tests.cases.spectral import SPECTRAL as SPECTRAL

CASES: dict[str, Case] = GEOMETRY | SPECTRAL | NTK

CALLS: dict[str, dict[str, Call]] = {
    "geometry": calls.GEOMETRY,
    "encodings": {},
    "spectral": calls.SPECTRAL,
    "ntk": calls.NTK,
    "theory": theory.THEORY,
    "nn": nn.NN,
    "training": training.TRAINING,
    "data": training.DATA,
}


def constructors() -> set[str]:
    """Functions that return encodings: test_catalogue.py crosses these with every transform."""
    made = (
        *(jaxpe.Encoding, jaxpe.encodings.LayerPattern),
        jaxpe.Encoding | jaxpe.encodings.LayerPattern,
    )
    return {
        name
        for name in dir(jaxpe.encodings)
        if inspect.isfunction(f := getattr(jaxpe.encodings, name))
        if f.__annotations__.get("return") in made or name == "chain"  # of a type variable
    }


def public_functions(package: str) -> set[str]:
    """Names of the public functions of a package."""
    module = importlib.import_module(f"jaxpe.{package}")
    names = (name for name in dir(module) if name[0] != "_")
    return {name for name in names if inspect.isroutine(inspect.unwrap(getattr(module, name)))}


# Public functions without a call here, and why.
HOST = "NumPy or plain Python: nothing is compiled"
FILES = "reads or writes files; what it computes with has rows of its own"
BUILDS = "builds an encoding, whose hooks are called below"
EXEMPT = {
    "geometry": {
        "pad_documents": HOST,
        "position_bins": HOST,
        "stack_corpora": HOST,
        "token_lists": HOST,
    },
    "encodings": {
        **dict.fromkeys(constructors(), BUILDS),
        "alibi_slopes": HOST,
        "catalogue": HOST,
        "inverse_frequencies": HOST,
        "register": HOST,
        "resolve": HOST,
        "rope_frequencies": HOST,
        "rotary_permutation": HOST,
        "encoding_properties": (
            "builds an encoding of its own and compiles to look at the programs; takes no arrays"
        ),
    },
    "nn": {
        "load_classifier": FILES,
        "load_causal_lm": FILES,
        "load_seq2seq_lm": FILES,
        "load_masked_lm": FILES,
        "load_model": FILES,
        "init_model": HOST,
        "parameter_count": HOST,
        "partition_rules": HOST,
        "position_table": HOST,
        "save_huggingface": FILES,
        "trunk": HOST,
    },
    "training": {
        "batches": HOST,
        "every_n_steps": HOST,
        "in_order": HOST,
        "load_config": FILES,
        "load_run": FILES,
        "read_log": FILES,
        "weight_decay_mask": HOST,
        "train": "a job, of the parts that have rows here",
    },
    "data": {
        **dict.fromkeys(
            (
                "check_data_dir",
                "count_triggers",
                "dependent_groups",
                "hold_out",
                "neighbour_similarity",
                "open_tokenizer",
                "relative_distance",
                "three_regimes",
                "tokenize",
                "tokenizer_of_ids",
                "tokens_from_ids",
                "zipf_drift",
                "zipf_stationary",
            ),
            HOST,
        ),
        **dict.fromkeys(
            (
                "find_shards",
                "load_corpus",
                "load_labelled",
                "load_tokens",
            ),
            FILES,
        ),
    },
}
