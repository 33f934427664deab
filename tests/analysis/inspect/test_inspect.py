"""An inspection of tiny models: laws of each stage, what does not apply, refusals."""

import jax
import numpy as np
import pytest
from flax import nnx
from scipy import stats

import jaxpe
from jaxpe import encodings, nn
from jaxpe._core.errors import InputError
from jaxpe._core.results import load_result, result_files
from jaxpe.analysis.inspect import InspectOptions, InspectResult, flax_model, inspect_model, needles
from jaxpe.analysis.inspect.flax_model import (
    FlaxModel,
    encoding_names,
    token_losses,
    unscaled_reason,
)
from jaxpe.analysis.inspect.job import STAGES
from jaxpe.analysis.inspect.needles import needle_retrieval
from jaxpe.analysis.inspect.position_ablation import moved_positions
from jaxpe.analysis.inspect.subject import read_inspect_subject
from jaxpe.analysis.inspect.token_loss import FACTOR, OWN, loss_by_position, text_windows
from jaxpe.analysis.inspect.weights import table_geometry
from jaxpe.data import open_tokenizer
from jaxpe.nn.positions import position_table
from tests.analysis.inspect.folders import text, with_tokenizer

LENGTH, EXAMPLES, HEADS, WIDTH = 16, 8, 4, 8


def inspected(name, folder, *, special=True, **options):
    model = with_tokenizer(name, folder / name, special=special)
    source = text(folder / "documents.txt")
    sizes = {"length": LENGTH, "examples": EXAMPLES, "quick": True}
    return InspectOptions(model=str(model), source=str(source), **sizes | options)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    stages = ("encoding", "geometry", "attention", "ablation", "loss")
    options = inspected("tiny_llama", folder, special=False, quick=False, stages=stages)
    return options, inspect_model(options)


def config(**options):
    sizes = {"vocab_size": 12, "dim": 8, "num_layers": 2, "num_heads": HEADS, "head_dim": WIDTH}
    return nn.TransformerConfig(**sizes | {"init_scale": 0.3, "embedding_scale": 1.0} | options)


def language_model(**options):
    encoding = encodings.rope(head_dim=WIDTH, base=50.0, **options)
    return nn.CausalLM(nn.Decoder(config(), encoding=encoding, rngs=nnx.Rngs(1)), rngs=nnx.Rngs(2))


@pytest.fixture(scope="module")
def rotary():
    return language_model()


def test_a_decoder_has_all_stages_but_the_geometry_of_a_table(llama, tmp_path):
    options, found = llama
    assert set(found.absent) == set(STAGES) - {"encoding", "attention", "ablation", "loss"}
    assert list(found.seconds) == ["reading", *options.stages]
    assert (found.facts.kind, found.facts.context, found.facts.longest) == ("causal", 64, 128)
    assert found.encoding.rope.context == 64
    stage = found.attention
    assert stage.sink.estimate == pytest.approx(stage.first.mean())
    np.testing.assert_allclose(stage.first_by_chance, np.mean(1 / np.arange(2, LENGTH + 1)))
    pairs = LENGTH - np.abs(np.arange(1 - LENGTH, LENGTH))
    np.testing.assert_allclose((stage.offsets * pairs).sum(axis=-1), LENGTH, rtol=1e-5)
    assert (stage.offsets[..., LENGTH:] == 0).all()
    for file, content in result_files(found, "inspect").items():
        (tmp_path / file).write_bytes(content)
    again = load_result(InspectResult, tmp_path / "inspect.json")
    jax.tree.map(np.testing.assert_array_equal, again.attention, found.attention)
    assert again.facts == found.facts


def test_an_encoder_has_a_table_and_no_loss(tmp_path):
    stages = ("encoding", "geometry", "ablation", "loss")
    options = inspected("tiny_bert", tmp_path, length=None, stages=stages)
    bert = inspect_model(options)
    assert set(bert.absent) == set(STAGES) - set(stages[:3])
    assert (bert.facts.kind, bert.facts.context) == ("encoder", 40)
    assert bert.encoding.table.positions == 40
    geometry = bert.geometry
    # Words are drawn evenly and the table is random: neither has an order.
    assert geometry.shuffled.low - 0.1 < geometry.corrected < geometry.shuffled.high + 0.1
    assert bert.ablation.measure == "embedding"
    assert bert.ablation.moved[0].value.estimate == pytest.approx(1, abs=1e-5)
    corpus = read_inspect_subject(options).corpus
    text_alone = corpus.mask & ~np.isin(corpus.ids, corpus.exclude)
    counts = jaxpe.geometry.count_tokens(corpus.ids, vocab_size=corpus.vocab_size, mask=text_alone)
    D = jaxpe.geometry.hellinger_distances(jaxpe.geometry.positional_distributions(counts))
    table = position_table(read_inspect_subject(options).module, length=corpus.ids.shape[1])
    stress = float(jaxpe.geometry.scaled_stress(table, D).stress)
    assert geometry.scaled_stress == pytest.approx(stress, rel=1e-4)
    with pytest.raises(InputError, match="positions and the corpus"):
        table_geometry(np.ones((3, 2)), corpus)


def test_a_masked_model_is_judged_by_its_loss_and_has_a_bias(tmp_path):
    stages = ("encoding", "ablation")
    mpnet = inspect_model(inspected("tiny_mpnet", tmp_path, task="mlm", stages=stages))
    assert mpnet.facts.encoding == "learned vectors and bias"
    assert mpnet.encoding.bias.shape == (4, 2 * LENGTH - 1)
    assert set(mpnet.absent) == set(STAGES) - set(stages)
    found = mpnet.ablation
    assert (found.measure, found.reference) == ("masked", pytest.approx(np.log(60)))
    assert all(abs(one.change.estimate) < 1 for one in found.moved)


def test_moved_tokens_of_a_rotary_model(llama):
    moved = {one.name: one for one in llama[-1].ablation.moved}
    assert abs(moved["shifted"].change.estimate) < 1e-5  # offsets alone matter
    assert moved["shuffled"].value.estimate == pytest.approx(
        moved["own"].value.estimate + moved["shuffled"].change.estimate
    )
    kept = moved_positions(6, text=slice(1, 5), most=7)
    assert "doubled" not in kept
    assert moved_positions(4, text=slice(0, 4), most=7)["doubled"].tolist() == [0, 2, 4, 6]
    for positions in kept.values():
        assert positions.max() < 7
    assert sorted(kept["shuffled"]) == list(range(6))
    assert (kept["same"][[0, 5]] == [0, 5]).all()


def test_losses_and_answers_are_those_of_the_logits(rotary):
    ids = np.random.default_rng(3).integers(0, 12, (2, LENGTH)).astype(np.int32)
    logits = np.asarray(rotary(ids).logits)
    shifted = logits[:, :-1] - jax.nn.logsumexp(logits[:, :-1], axis=-1, keepdims=True)
    expected = -np.take_along_axis(np.asarray(shifted), ids[:, 1:, None], axis=-1)[..., 0]
    apply, params = nn.functionalize(rotary, token_losses)
    np.testing.assert_allclose(jax.jit(apply)(params, ids), expected, atol=1e-5)
    row, questions = np.arange(10, dtype=np.int32), np.array([[3, 4], [5, 6]], np.int32)
    apply, params = nn.functionalize(rotary, flax_model._answers)  # from a cache
    found = np.asarray(jax.jit(apply)(params, row, questions))
    whole = np.stack([np.concatenate([row, one]) for one in questions])
    np.testing.assert_allclose(found, np.asarray(rotary(whole).logits)[:, -1], atol=1e-5)


def test_scalings_are_tried_beyond_the_context_alone(llama):
    loss = llama[-1].loss
    names = [one.name for one in loss.scaled]
    assert names == [OWN, "linear ×2", "NTK ×2", "YaRN ×2"]
    assert 64 in loss.edges
    inside = np.stack([one.loss.mean[0] for one in loss.scaled])
    assert np.ptp(inside[1:]) > 0  # other frequencies, other losses
    assert loss.distances[0] == 0
    assert [one.name.split("×")[-1] for one in loss.far[1:]] == [f"{FACTOR:g}"] * 3
    assert [one.name for one in loss.scalings[:3]] == names[1:]
    gains = [one.gain.mean[-1] for one in (loss.far[0], loss.far[-1])]
    assert loss.scalings[-1].far.estimate == pytest.approx(gains[0] - gains[1])


def test_tables_turn_as_the_model_does(llama, rotary):
    """The model's own frequencies as tables, against its positions."""
    rope = llama[-1].encoding.rope
    texts = text_windows(np.arange(400) % 12, count=2, length=24)
    begun, replaced = (
        loss_by_position(rotary, np.insert(texts, 0, one, axis=1)[:, :24], far=False, prefix=prefix)
        for one, prefix in ((5, []), (7, [5]))  # 5 takes the place of 7
    )
    means = (found.scaled[0].loss.mean for found in (begun, replaced))
    np.testing.assert_allclose(*means, atol=1e-6)
    frequencies = encodings.rope_frequencies(head_dim=WIDTH, base=50.0)
    for model in (rotary, language_model(layout="interleaved")):
        run, at = FlaxModel(model).losses(), np.arange(texts.shape[-1])
        np.testing.assert_allclose(run(texts, at, frequencies), run(texts, at), atol=1e-5)
    turned, window = encodings.rope(head_dim=WIDTH), encodings.sliding_window(size=4)
    pattern = encodings.interleaved_layers(window, turned, period=2)
    mixed = nn.Decoder(config(), layer_encoding=pattern, rngs=nnx.Rngs(1))
    assert unscaled_reason(mixed, 64, rope) == "layers differ in their positions"
    assert encoding_names(mixed) == ["rotary", "windows of attention"]
    assert set(FlaxModel(mixed).absent()) == {"spectral", "heads"}
    windowed = nn.Decoder(config(), encoding=encodings.chain(turned, window), rngs=nnx.Rngs(1))
    assert unscaled_reason(windowed, 64, rope) == "positions enter in other ways, too"


class _Oracle(FlaxModel):
    """Stands for a model: reads the colour of the name asked for, or that of another."""

    def __init__(self, module, shift):
        super().__init__(module)
        self.shift = shift

    def answers(self):
        return self.read

    def read(self, row, questions):
        row, said = list(row), np.zeros((len(questions), 60))
        for k in range(len(questions)):
            name = questions[(k + self.shift) % len(questions)][-2]
            said[k, row[row.index(name) + 2]] = 1.0
        return said


@pytest.mark.parametrize(("shift", "accuracy"), [(0, 1.0), (1, 0.0)])
def test_needles_are_where_they_should_be(llama, rotary, shift, accuracy):
    oracle = _Oracle(rotary, shift)
    tokenizer = open_tokenizer(llama[0].model + "/tokenizer.json")
    stream = np.arange(20, 500, dtype=np.int32) % 20 + 20
    found = needle_retrieval(oracle, tokenizer, stream, lengths=(64, 80), texts=2)
    assert (found.accuracy.mean == accuracy).all()
    assert found.chance == 0.2
    for ends, trials in ((found.by_length, 2 * needles.DEPTHS), (found.accuracy, 2)):  # 2 texts
        right = int(accuracy) * trials
        wilson = stats.binomtest(right, trials).proportion_ci(method="wilson")
        np.testing.assert_allclose((ends.low.ravel()[0], ends.high.ravel()[0]), wilson, atol=1e-12)
    with pytest.raises(InputError, match="`longest=20`"):
        needle_retrieval(oracle, tokenizer, stream, lengths=(20,), texts=2)
