"""A worker that trains Hugging Face's BERT in torch on the CPU, one round a line of its input.

It is a `_torch_worker` and needs transformers, too: a BERT with a classifier of 2 classes, float32,
dropout 0.1 and torch's fused attention. A round takes `steps` steps (forward, backward, AdamW), and
its number is seconds a step. Ids are random, no token is padding.
"""

import time
from collections.abc import Callable
from typing import Any

import torch  # pyrefly: ignore[missing-import]
import transformers  # pyrefly: ignore[missing-import]

from experiments.benchmarks._torch_worker import serve


def round_of(sizes: Any) -> Callable[[], float]:
    """A function that takes steps and returns seconds a step."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=sizes.vocab,
        hidden_size=sizes.width,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=sizes.hidden,
        max_position_embeddings=max(512, sizes.length),
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        num_labels=2,
        attn_implementation="sdpa",
    )
    model = transformers.BertForSequenceClassification(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    shape = (sizes.batch, sizes.length)
    mask = torch.ones(shape, dtype=torch.long)

    def steps() -> float:
        start = time.perf_counter()
        for _ in range(sizes.steps):
            ids, labels = torch.randint(sizes.vocab, shape), torch.randint(2, shape[:1])
            optimizer.zero_grad(set_to_none=True)
            model(ids, attention_mask=mask, labels=labels).loss.backward()
            optimizer.step()
        return (time.perf_counter() - start) / sizes.steps

    return steps


if __name__ == "__main__":
    serve(round_of, transformers)
