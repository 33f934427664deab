"""A worker that trains Hugging Face's BERT in torch on the CPU, one round a line of its input.

    python -m experiments.benchmarks._torch_training --batch 32 --length 64 --steps 3 --threads 2

Needs torch and transformers, so it may run under another Python than the benchmark that starts it.
It builds BERT-mini (4 layers, 256 wide, by default) with a classifier of 2 classes, float32,
dropout 0.1 and torch's fused attention, warms up, and prints one JSON line with its sizes and
versions. Then for each line "go" of its input it takes `--steps` steps (forward, backward, AdamW)
and prints {"seconds_per_step", "tokens_per_second", "loss"}; "quit" or the end of the input ends
it. So rounds can take turns with those of another contestant. Ids are random, no token is padding.
"""

import argparse
import json
import sys
import time

import torch  # pyrefly: ignore[missing-import]
import transformers  # pyrefly: ignore[missing-import]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    sizes = {"batch": 32, "length": 64, "steps": 3, "warmup": 3, "threads": 2, "layers": 4}
    sizes |= {"width": 256, "heads": 4, "hidden": 1024, "vocab": 30522}
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    return parser.parse_args()


def make_model(sizes: argparse.Namespace) -> torch.nn.Module:
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
    return transformers.BertForSequenceClassification(config).train()


class Trainer:
    """A model, its optimizer and batches of random ids."""

    def __init__(self, sizes: argparse.Namespace):
        torch.manual_seed(0)
        self.sizes = sizes
        self.model = make_model(sizes)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, weight_decay=0.01)

    def step(self) -> float:
        shape = (self.sizes.batch, self.sizes.length)
        ids = torch.randint(self.sizes.vocab, shape)
        labels = torch.randint(2, shape[:1])
        mask = torch.ones(shape, dtype=torch.long)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def round(self) -> dict[str, float]:
        start = time.perf_counter()
        losses = [self.step() for _ in range(self.sizes.steps)]
        seconds = (time.perf_counter() - start) / self.sizes.steps
        tokens = self.sizes.batch * self.sizes.length
        speed = {"seconds_per_step": seconds, "tokens_per_second": tokens / seconds}
        return speed | {"loss": losses[-1]}


def main() -> None:
    sizes = arguments()
    torch.set_num_threads(sizes.threads)
    trainer = Trainer(sizes)
    for _ in range(sizes.warmup):
        trainer.step()
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    parameters = sum(p.numel() for p in trainer.model.parameters())
    print(json.dumps(versions | vars(sizes) | {"parameters": parameters}), flush=True)
    for line in sys.stdin:
        if line.strip() == "quit":
            break
        if line.strip() != "go":
            sys.exit(f"expected go or quit, not {line.strip()!r}")
        print(json.dumps(trainer.round()), flush=True)


if __name__ == "__main__":
    main()
