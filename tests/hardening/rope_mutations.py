"""Spoilt configurations: right, or named, or not judged, but never a confident wrong answer.

`tools/parity/make_rope_mutations.py` drops, misspells and moves each positional key of
configurations, and stores what transformers computes of them. The tests judge some of them, and
`experiments/beyond/rope_agreement.py` all.
"""

import copy
import gzip
import json
import re
import tempfile
from pathlib import Path

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.plans import RopeOptions, explain_rope

STORED = json.loads(
    gzip.decompress((Path(__file__).parents[1] / "parity" / "rope_mutations.json.gz").read_bytes())
)
CONFIGURATIONS = STORED["configurations"]
PROGRAM = "transformers 5.24"
WINDOWED = ("sliding_attention", "hybrid_sliding")


def apply_change(fields, change):
    """Fields with one key dropped, renamed or moved."""
    fields = copy.deepcopy(fields)
    *path, key = change["path"]
    value = _site(fields, path).pop(key)
    if change["op"] != "drop":
        *path, key = change["to"]
        _site(fields, path)[key] = value
    return fields


def _site(fields, path):
    for name in path:
        fields = fields[name]
    return fields


def analysis(fields):
    """The analysis, or the message of its refusal."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(fields))
        try:
            return explain_rope(RopeOptions(config=str(path), programs=PROGRAM))
        except InputError as error:
            return str(error).replace(folder, "")


def verdict(found, truth, change=None, before=()):
    """What an analysis says of a configuration, held against what transformers computes.

    Args:
        found: the analysis, or the message of a refusal.
        truth: digests by runs of layers, or the error.
        change: what was done to the configuration; None for nothing.
        before: findings of the configuration as it was, which say nothing of the change.
    """
    names = [] if change is None else [change["path"][-1], *change.get("to", [])[-1:]]
    if isinstance(found, str):
        named = any(_mentions(found, name) for name in names)
        return "refused" if "error" in truth or named else "wrong"
    if found.status == "not judged":
        return "not judged"
    program = found.programs[0]
    if program.problem is not None:
        # The class ran, and no forward pass, which splits frequencies and scales queries.
        forward = re.search("are not half of|llama_4_scaling_beta|layers slide", program.problem)
        return "refused" if "error" in truth or forward else "wrong"
    if "error" not in truth and not differences(found, truth):
        return "right"
    texts = [one.text for one in found.findings if one.text not in before]
    told = any(_mentions(text, name) for text in (*texts, *found.unread) for name in names)
    return "named" if told else "wrong"


def _mentions(text, name):
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def differences(found, truth):
    """Layers whose numbers differ, with both."""
    groups = [one for one in found.groups if "indexer" not in one.place]
    if found.length != (truth["length"] or found.length):
        return [("length", found.length, truth["length"])]
    wrong, start = [], 0
    for expected, count in truth["layers"]:
        for layer in (start, start + count - 1):
            own = [one for one in groups if one.layers is None or layer in one.layers]
            if not any(_same(one, expected) for one in own):
                wrong.append((layer, [_digest(one) for one in own], expected))
        start += count
    windows = {one.window for one in groups if _windowed(one)}
    if windows - {truth.get("window") or None}:
        wrong.append(("window", windows, truth.get("window")))
    return wrong


def _windowed(group):
    return group.name in WINDOWED and not group.two_sided and group.layers != ()


def _digest(group):
    if not group.turns:
        return None
    values = group.frequencies
    if group.section_order == "height and width first":  # the order of ERNIE's buffer
        image = values[: len(values) - (group.sections or (22, 22, 20))[2]]
        values = np.concatenate([image[0::2], image[1::2], values[len(image) :]])
    picked = [values[i] for i in (0, min(1, len(values) - 1), len(values) // 2, -1)]
    return [*map(float, picked), len(values), group.attention_factor]


def _same(group, expected):
    own = _digest(group)
    if own is None or expected is None:
        return own is expected
    return bool(np.allclose(own, expected[:6], rtol=2e-5, atol=0))


def judged(name, sample=None):
    """Verdict, change, analysis and truth of the mutations of a configuration."""
    stored = CONFIGURATIONS[name]
    fields, ((_, first), *cases) = stored["fields"], stored["cases"]
    whole = analysis(fields)
    truth = STORED["digests"][first]
    yield verdict(whole, truth), None, whole, truth
    before = () if isinstance(whole, str) else {one.text for one in whole.findings}
    step = 1 if sample is None else max(1, -(-len(cases) // sample))
    for change, index in cases[len(name) % step :: step]:
        found, truth = analysis(apply_change(fields, change)), STORED["digests"][index]
        yield verdict(found, truth, change, before), change, found, truth
