"""Data of the interactive view of attention by offset and head."""

import base64
import json

import numpy as np

from jaxpe.analysis.inspect import AttentionStage
from jaxpe.report.inspect.text import key_weights

_STEPS = 65535  # of a weight in 16 bits


def view_data(stage: AttentionStage) -> str:
    """JSON of the view: numbers of each head, and its mean weights by offset in 16 bits.

    Weights are in base64, little endian, in units of 1/65535, heads of a layer one after another.

    >>> sorted(json.loads(view_data(result.attention)))  # doctest: +SKIP
    ['heads', 'layers', 'maps', 'offsets', 'weights']
    """
    reach = stage.offsets.shape[-1] // 2
    causal = not stage.at_offset(1).any()
    shown = stage.offsets[..., : reach + 1] if causal else stage.offsets
    maps = {f"weight on {name}": weights for name, weights in key_weights(stage).items()}
    maps |= {
        "logits explained by positions": np.clip(stage.variance.position, 0, 1),
        "evenness": stage.evenness,
        "mean distance, tokens": stage.distance,
    }
    codes = np.rint(np.clip(shown, 0, 1) * _STEPS).astype("<u2")
    data = {
        "layers": stage.layer_numbers,
        "heads": stage.first.shape[1],
        "offsets": [-reach, shown.shape[-1] - 1 - reach],
        "maps": {name: np.round(values, 3).tolist() for name, values in maps.items()},
        "weights": base64.b64encode(codes.tobytes()).decode(),
    }
    return json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
