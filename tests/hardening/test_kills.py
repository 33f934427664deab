"""Counts killed at random moments and gone on with are those of a run that never was killed."""

import numpy as np

from tests.hardening.kills import killed_and_resumed, same_files

OPTIONS = {"tokenizer": "bytes", "length": 12, "folds": 4, "nulls": 2}


def killed_count(folder, *, kills):
    rng = np.random.default_rng(0)
    for number, size in enumerate((300, 60, 240)):
        rows = [" ".join(rng.choice(["to", "be", "or"], 5)) for _ in range(size)]
        (folder / f"{number}.txt").write_text("\n".join(rows))
    batches = {"batch-size": 4, "save-every": 2}
    options = [f"--{name}={value}" for name, value in (OPTIONS | batches).items()]
    return killed_and_resumed(
        lambda out: ["jaxpe", "count", folder / "?.txt", *options, "--out", out],
        folder,
        kills=kills,
        seed=0,
        same=same_files("counts.npz", "counts.json"),
        begins="documents,",
        env={"JAX_PLATFORMS": "cpu"},
    )


def test_killed_at_random_moments(tmp_path):
    found = killed_count(tmp_path, kills=2)
    assert found.kills == 2
    assert found.compared >= 1
    assert any("going on from step" in run.output for run in found.runs)
