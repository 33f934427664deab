"""An inspection of tiny models: laws of each stage, what does not apply, resuming, refusals."""

import base64
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from scipy import stats

import jaxpe
from jaxpe import nn
from jaxpe._core import memory
from jaxpe._core.errors import InputError
from jaxpe._core.results import load_result, result_files
from jaxpe.analysis.attention.documents import Sample
from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.inspect import (
    STAGES,
    InspectOptions,
    InspectResult,
    ScalingChange,
    ablate_positions,
    describe_table,
    flax_model,
    inspect_attention,
    inspect_model,
    job,
    loss_by_position,
    moved_positions,
    needle_retrieval,
    needles,
    position_ablation,
    position_probe,
    probe_layers,
    token_losses,
)
from jaxpe.analysis.inspect.flax_model import FlaxModel, encoding_names, unscaled_reason
from jaxpe.analysis.inspect.token_loss import FACTOR, OWN, _bin_means, text_windows
from jaxpe.analysis.inspections import compare_inspections, measures, usual_range
from jaxpe.data import open_tokenizer, tokens_from_ids
from jaxpe.geometry import position_decodability
from jaxpe.report.inspect.advice import advice
from jaxpe.report.inspect.attention_view import view_data
from jaxpe.report.inspect.page import inspect_markdown
from jaxpe.report.inspect.sections import absent_sections, inspect_figures, page_sections
from jaxpe.report.inspect.summary import MOST_WORDS, headlines, inspect_summary
from jaxpe.report.inspect.text import ablation_sentences
from jaxpe.report.methods import methods
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
    options = inspected("tiny_llama", folder, special=False, quick=False)
    return options, folder / "out", inspect_model(options, folder / "out")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    return inspect_model(inspected("tiny_bert", folder, length=None))


@pytest.fixture(scope="module")
def mpnet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mpnet")
    stages = ("encoding", "ablation")
    return inspect_model(inspected("tiny_mpnet", folder, task="mlm", stages=stages))


def config(**options):
    sizes = {"vocab_size": 12, "dim": 8, "num_layers": 2, "num_heads": HEADS, "head_dim": WIDTH}
    return nn.TransformerConfig(**sizes | {"init_scale": 0.3, "embedding_scale": 1.0} | options)


def sample(module, *, rows=EXAMPLES, n=LENGTH):
    ids = np.random.default_rng(0).integers(0, 12, (rows, n)).astype(np.int32)
    return Sample(module, "causal", ids, slice(0, n), {}, 0), tokens_from_ids(ids)


@pytest.fixture(scope="module")
def rotary():
    decoder = nn.Decoder(config(), encoding=jaxpe.rope(head_dim=WIDTH, base=50.0), rngs=nnx.Rngs(1))
    return nn.CausalLM(decoder, rngs=nnx.Rngs(2))


def test_a_decoder_has_all_stages_but_the_geometry_of_a_table(llama):
    _, _, found = llama
    assert set(found.absent) == {"geometry"}
    assert (found.facts.kind, found.facts.context, found.facts.longest) == ("causal", 64, 128)
    assert found.encoding.rope.context == 64
    assert found.encoding.table is None
    stage = found.attention
    for overall, each in (
        (stage.sink, stage.first),
        (stage.special_overall, stage.special),
        (stage.dummy_overall, stage.dummy),
        (stage.other_overall, stage.other),
    ):
        assert overall.estimate == pytest.approx(each.mean())
    pairs = LENGTH - np.abs(np.arange(1 - LENGTH, LENGTH))
    np.testing.assert_allclose((stage.offsets * pairs).sum(axis=-1), LENGTH, rtol=1e-5)
    assert (stage.offsets[..., LENGTH:] == 0).all()


def test_an_encoder_has_a_table_and_no_loss(bert):
    assert set(bert.absent) == {"loss", "needles"}
    assert (bert.facts.kind, bert.facts.context) == ("encoder", 40)
    assert bert.encoding.table.positions == 40
    geometry = bert.geometry
    assert geometry.shuffled.low < geometry.shuffled.estimate < geometry.shuffled.high
    # Words are drawn evenly and the table is random: neither has an order.
    assert geometry.shuffled.low - 0.1 < geometry.corrected < geometry.shuffled.high + 0.1
    assert bert.ablation.measure == "embedding"
    assert bert.ablation.moved[0].value.estimate == pytest.approx(1, abs=1e-5)
    assert 0 < bert.attention.special_overall.estimate < 1


def test_a_masked_model_is_judged_by_its_loss_and_has_a_bias(mpnet):
    assert mpnet.facts.encoding == "learned vectors and bias"
    assert mpnet.encoding.bias.shape == (4, 2 * LENGTH - 1)
    assert set(mpnet.absent) == set(STAGES) - {"encoding", "ablation"}
    found = mpnet.ablation
    assert (found.measure, found.reference) == ("masked", pytest.approx(np.log(60)))
    assert all(abs(one.change.estimate) < 1 for one in found.moved)


@pytest.mark.parametrize("name", ["llama", "bert", "mpnet"])
def test_results_come_back_from_disk_and_are_shown(name, request, tmp_path):
    found = request.getfixturevalue(name)
    found = found if isinstance(found, InspectResult) else found[-1]
    for file, content in result_files(found, "inspect").items():
        (tmp_path / file).write_bytes(content)
    again = load_result(InspectResult, tmp_path / "inspect.json")
    assert inspect_markdown(again) == inspect_markdown(found)
    sections = page_sections(found)
    for section in sections:
        assert section.finding.endswith(".")
        assert all(len(row) == len(t.header) for t in section.tables for row in t.rows)
    assert {section.name for section in sections if section.tables} >= set(inspect_figures(found))
    assert not {section.title for section in sections} & set(absent_sections(found))
    assert len(inspect_summary(found).split()) <= MOST_WORDS
    assert 1 <= len(headlines(found)) <= 3
    assert f"{found.facts.examples} of" in methods(found)


def test_the_view_of_attention_has_the_weights(llama):
    stage = llama[-1].attention
    np.testing.assert_allclose(stage.first_by_chance, np.mean(1 / np.arange(2, LENGTH + 1)))
    data = json.loads(view_data(stage))
    codes = np.frombuffer(base64.b64decode(data["weights"]), "<u2").reshape(2, HEADS, -1)
    assert data["offsets"] == [1 - LENGTH, 0]  # a decoder has no later keys
    np.testing.assert_allclose(codes / 65535, stage.offsets[..., :LENGTH], atol=1e-5)
    assert all(np.shape(values) == (2, HEADS) for values in data["maps"].values())


def test_advice_and_summary_depend_on_numbers(llama, bert):
    found = llama[-1]
    for ends, advised in (((0.4, 0.35, 0.45), True), ((0.4, 0.25, 0.5), False)):
        sinks = found.attention.sinks._replace(
            weight_overall=Interval(*ends), positions=np.array([2]), position_share=np.array([0.7])
        )
        changed = found._replace(attention=found.attention._replace(sinks=sinks))
        steps = [step.paste for step in advice(changed)]
        assert any("evict_tokens" in paste and "start=3" in paste for paste in steps) == advised
        assert ("Sinks take" in inspect_summary(changed)) == advised
    facts = found.facts._replace(context=64, longest=64, command="jaxpe inspect m stdlib")
    assert not any("--longest" in step.paste for step in advice(found._replace(facts=facts)))
    longer = found._replace(facts=facts._replace(context=128))
    assert any("--longest 128" in step.paste for step in advice(longer))
    for cut, said in ((100, True), (128, False), (0, False)):
        changed = longer._replace(facts=longer.facts._replace(cut=cut))
        assert any("cuts texts at 100 tokens" in step.text for step in advice(changed)) == said
    for change, ordered in (
        ((0.3, 0.2, 0.4), True),
        ((0.0, -0.01, 0.01), False),
        ((0.0, -1, 1), None),
    ):
        moved = [
            move._replace(change=Interval(*change)) if move.name == "shuffled" else move
            for move in found.ablation.moved
        ]
        changed = found._replace(ablation=found.ablation._replace(moved=moved))
        hardly = any("order hardly" in step.text for step in advice(changed))
        assert hardly == (ordered is False)
        assert ("positions adds 0.30 nats" in inspect_summary(changed)) == bool(ordered)
    for change, small in (((0.0, -0.05, 0.05), True), ((-0.2, -0.5, 0.05), False)):
        moved = [move._replace(change=Interval(*change)) for move in found.ablation.moved]
        said = " ".join(ablation_sentences(found.ablation._replace(moved=moved)))
        assert ("hardly" in said) == small
    reach = found.loss.reach or bert.ablation.reach
    reach = reach._replace(lengths=np.array([16, 32, 64]), effective=16, low=16, measure="loss")
    for high, cut in ((32, True), (64, False)):
        changed = found._replace(loss=found.loss._replace(reach=reach._replace(high=high)))
        pastes = [step.paste for step in advice(changed)]
        assert (f"prompt = prompt[-{high}:]" in pastes) == cut
    scalings = [
        ScalingChange("YaRN ×2", 2.0, Interval(0.1, 0.0, 0.2), Interval(-1.0, -2.0, -0.5)),
        ScalingChange("linear ×4", 4.0, Interval(0.1, 0.0, 0.2), Interval(-1.0, -2.0, 0.5)),
    ]
    changed = found._replace(loss=found.loss._replace(scalings=scalings))
    assert '"rope_type": "yarn", "factor": 2' in "".join(step.paste for step in advice(changed))
    move = bert.ablation.moved[-1]._replace(name="shifted")
    for ends, padded in (((-0.2, -0.3, -0.1), True), ((-0.1, -0.2, 0.0), False)):
        moved = [*bert.ablation.moved, move._replace(change=Interval(*ends))]
        changed = bert._replace(ablation=bert.ablation._replace(moved=moved))
        assert any("position_ids" in step.paste for step in advice(changed)) == padded


def test_inspections_are_compared_with_each_other_and_with_the_usual(llama, bert, monkeypatch):
    both = compare_inspections([llama[-1], bert])
    assert [one.model for one in both.models] == ["tiny_llama", "tiny_bert"]
    assert "`positions` differs" in both.warnings[0]
    of = both.models[0]

    def other(index, low):
        value = {"position_share": Interval(low + 0.05, low, low + 0.1)}
        return of._replace(model=f"model {index}", values=value)

    apart, close = ([other(k, k * step) for k in range(3)] for step in (0.2, 0.08))
    for order in (apart, apart[::-1]):
        assert compare_inspections(order).decided == {"position_share": True}
    assert compare_inspections(close).decided == {"position_share": False}
    monkeypatch.setattr(measures, "inspected_models", lambda: apart)
    usual = usual_range(of, "position_share")
    assert usual == (pytest.approx(0.05), pytest.approx(0.45), 3, True)
    assert usual_range(apart[0], "position_share") is None  # two others
    assert not usual_range(of._replace(positions=999), "position_share").alike
    assert usual_range(both.models[1], "position_share") is None  # no encoders
    for ends, above in (((0.9, 0.8, 1.0), True), ((0.6, 0.3, 0.9), False)):
        attention = llama[-1].attention._replace(overall=Interval(*ends))
        said = inspect_summary(llama[-1]._replace(attention=attention))
        label = "Above the 3 decoders inspected before: logits explained by positions."
        assert (label in said) == above
    with pytest.raises(InputError, match="pass two or more"):
        compare_inspections([bert])


def test_a_run_resumes_where_it_was_stopped(llama, monkeypatch):
    options, folder, found = llama

    def never(*_):
        raise AssertionError("a stage that is done was run again")

    monkeypatch.setattr(
        job, "_STAGES", {name: (kind, never) for name, (kind, _) in job._STAGES.items()}
    )
    again = inspect_model(options, folder)
    assert json.dumps(jaxpe.analysis.to_json(again._replace(seconds={}))) == json.dumps(
        jaxpe.analysis.to_json(found._replace(seconds={}))
    )
    (folder / "stages" / "encoding.stamp").write_text("of other options")
    with pytest.raises(AssertionError, match="was run again"):
        inspect_model(options, folder)


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


def test_without_positions_an_encoder_does_not_change():
    encoder = nn.Encoder(config(), rngs=nnx.Rngs(0))
    found = ablate_positions(sample(encoder)[0])
    for one in found.moved:
        assert one.value.estimate == pytest.approx(1, abs=1e-6)


def test_logits_that_are_a_bias_are_positional_and_alike_in_all_documents():
    encoder = nn.Encoder(config(), encoding=jaxpe.alibi(num_heads=HEADS), rngs=nnx.Rngs(0))
    query = encoder.layers.attention.query
    query.kernel[...] = jnp.zeros_like(query.kernel[...])
    of, corpus = sample(encoder)
    found = inspect_attention(of, corpus=corpus)
    assert found.overall.estimate == pytest.approx(1, abs=1e-5)
    assert found.shuffled == pytest.approx(1, abs=1e-5)
    assert found.dummy_overall.estimate == pytest.approx(1, abs=1e-5)
    assert found.other_overall.estimate == pytest.approx(1, abs=1e-5)
    # The steepest head looks at neighbours most; rows of weights sum to 1.
    assert found.at_offset(-1)[0, 0] > found.at_offset(-1)[0, -1]
    assert found.special.max() == 0
    assert found.first_by_chance == 1 / LENGTH


def test_losses_of_tokens_are_those_of_the_logits(rotary):
    ids = np.random.default_rng(3).integers(0, 12, (2, LENGTH)).astype(np.int32)
    logits = np.asarray(rotary(ids).logits)
    shifted = logits[:, :-1] - jax.nn.logsumexp(logits[:, :-1], axis=-1, keepdims=True)
    expected = -np.take_along_axis(np.asarray(shifted), ids[:, 1:, None], axis=-1)[..., 0]
    apply, params = nn.functionalize(rotary, token_losses)
    np.testing.assert_allclose(jax.jit(apply)(params, ids), expected, atol=1e-5)


def test_bins_hold_the_losses_of_their_tokens():
    of_tokens, edges = np.arange(1.0, 10.0), np.array([1, 5, 10])
    means = _bin_means(np.stack([of_tokens, -of_tokens]), edges)
    np.testing.assert_array_equal(means, np.outer([1, -1], [2.5, 7]))


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
    near = loss.floor.estimate - loss.near.estimate
    assert loss.far[0].gain.mean[0] == pytest.approx(near, abs=1e-6)


def test_tables_turn_as_the_model_does(llama, rotary):
    """The model's own frequencies as tables, against its positions."""
    rope = llama[-1].encoding.rope
    texts = text_windows(np.arange(400) % 12, count=2, length=24)
    plain = loss_by_position(rotary, texts, context=64, rope=None, far=False)
    # base 100 in the configuration, 50 in the model: the tables are those of the configuration.
    other = nn.CausalLM(
        nn.Decoder(config(), encoding=jaxpe.rope(head_dim=WIDTH, base=50.0), rngs=nnx.Rngs(1)),
        rngs=nnx.Rngs(2),
    )
    plan = rope.groups[0]._replace(
        frequencies=jaxpe.encodings.rope_frequencies(head_dim=WIDTH, base=50.0).inverse,
        turning=WIDTH,
        base=50.0,
    )
    own = rope._replace(groups=(plan,))
    tabled = loss_by_position(other, texts, context=20, rope=own, far=False)
    whole = plain.scaled[0].loss.mean
    begun = loss_by_position(
        rotary, np.insert(texts, 0, 5, axis=1)[:, :24], context=64, far=False
    ).scaled[0]  # fmt: skip
    first = np.insert(texts, 0, 7, axis=1)[:, :24]  # 5 takes the place of 7
    replaced = loss_by_position(rotary, first, context=64, far=False, prefix=[5]).scaled[0]
    np.testing.assert_allclose(replaced.loss.mean, begun.loss.mean, atol=1e-6)
    np.testing.assert_allclose(tabled.scaled[0].loss.mean[0], whole[0], atol=1e-5)
    assert plain.unscaled
    assert not tabled.unscaled
    rotary, window = jaxpe.rope(head_dim=WIDTH), jaxpe.encodings.sliding_window(size=4)
    pattern = jaxpe.encodings.interleaved_layers(window, rotary, period=2)
    mixed = nn.Decoder(config(), layer_encoding=pattern, rngs=nnx.Rngs(1))
    assert unscaled_reason(mixed, 64, rope) == "layers differ in their positions"
    assert encoding_names(mixed) == ["rotary", "windows of attention"]
    windowed = nn.Decoder(config(), encoding=jaxpe.chain(rotary, window), rngs=nnx.Rngs(1))
    assert unscaled_reason(windowed, 64, rope) == "positions enter in other ways, too"
    pairs = jaxpe.rope(head_dim=WIDTH, base=50.0, layout="interleaved")
    model = nn.CausalLM(nn.Decoder(config(), encoding=pairs, rngs=nnx.Rngs(1)), rngs=nnx.Rngs(2))
    run, at = FlaxModel(model).losses(), np.arange(texts.shape[-1])
    frequencies = jaxpe.encodings.rope_frequencies(head_dim=WIDTH, base=50.0)
    np.testing.assert_allclose(run(texts, at, frequencies), run(texts, at), atol=1e-5)


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


def test_a_random_model_finds_no_needles_and_reads_its_text_once(llama):
    found = llama[-1].needles
    assert found.lengths.tolist() == [64]
    assert found.accuracy.mean.shape == (1, needles.DEPTHS)
    assert 0 <= found.by_length.mean[0] <= 0.6


def test_answers_behind_a_cache_are_those_of_the_whole_row(rotary):
    row = np.arange(10, dtype=np.int32)
    questions = np.array([[3, 4], [5, 6]], np.int32)
    apply, params = nn.functionalize(rotary, flax_model._answers)
    found = np.asarray(jax.jit(apply)(params, row, questions))
    for question, logits in zip(questions, found, strict=True):
        whole = np.asarray(rotary(np.concatenate([row, question])).logits)[-1]
        np.testing.assert_allclose(logits, whole, atol=1e-5)


def test_the_probe_chooses_its_ridge_where_it_is_fitted():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2, EXAMPLES, LENGTH, 40)).astype(np.float32)
    noise[1, ..., 0] += 3 * np.arange(LENGTH)
    found = probe_layers(noise)
    assert found.r2.mean[0] > -0.5  # with as many entries as tokens
    assert found.r2.mean[1] > 0.9
    assert (found.r2.low <= found.r2.high).all()
    assert found.by_chance == 4.0


def test_the_interval_of_the_probe_allows_for_its_fit():
    """Resamples of the documents judged hold the mean in 80 % of such corpora."""
    rng = np.random.default_rng(0)
    shape = (60, 16, 12, 4)
    noise = rng.normal(size=shape) + 0.5 * rng.normal(size=(60, 16, 1, 4))
    found = probe_layers((noise + np.linspace(-1, 1, 12)[:, None]).astype(np.float32)).r2
    truth = found.mean.mean()
    assert np.mean((found.low <= truth) & (truth <= found.high)) >= 0.9


def test_the_jackknife_of_the_probe_is_that_of_fits_without_each_group():
    layer = np.random.default_rng(0).normal(size=(18, 6, 3)) + np.arange(6)[:, None]
    pairs = (
        np.arange(18) // 2
    )  # of a fitted document and one judged; the last is in the first group
    expected = [
        position_decodability(layer[pairs % 8 != group], ridge=0.1).r2 for group in range(8)
    ]
    np.testing.assert_allclose(position_probe._jackknife(layer, 0.1), expected, rtol=1e-5)


def test_the_ridge_of_the_probe_is_chosen_by_the_documents_that_it_is_fitted_to(monkeypatch):
    monkeypatch.setattr(position_probe, "_jackknife", lambda layer, ridge: np.array(ridge))
    layer = np.random.default_rng(0).normal(size=(16, 12, 4)).astype(np.float32)
    layer[::2] += (
        10 * np.arange(12)[:, None]
    )  # a clock, which needs little ridge; the rest is noise
    assert position_probe._probe(layer)[1] < position_probe._probe(layer[::-1])[1]


def test_a_mean_cosine_is_of_different_documents():
    found = position_ablation._mean_cosine(np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]))
    assert found == pytest.approx((0 + 2 * 0.5**0.5) / 3)


def test_a_table_of_equal_rows_has_no_directions():
    found = describe_table(np.ones((5, 3)))
    assert (found.rank, found.widest) == (0.0, 0)
    assert found.norms.tolist() == pytest.approx([3**0.5] * 5)


def test_what_cannot_be_inspected_is_refused(tmp_path, monkeypatch):
    options = inspected("tiny_bert", tmp_path)
    for changed, message in (
        ({"model": str(tmp_path / "nowhere")}, "does not exist"),
        ({"length": 3}, "`length` is 3"),
        ({"source": str(text(tmp_path / "short.txt", documents=3))}, "too short"),
        ({"tokenizer": str(tmp_path / "no.json")}, "no such file"),
    ):
        with pytest.raises(InputError, match=message):
            inspect_model(InspectOptions(**(vars(options) | changed)))
    monkeypatch.setattr(memory, "available_bytes", lambda: 100_000)
    with pytest.raises(InputError, match=r"million parameters.*0\.0 GB"):
        inspect_model(options)


def test_a_model_without_a_tokenizer_or_of_another_kind_is_refused(tmp_path):
    options = inspected("tiny_llama", tmp_path, special=False)
    config_file = tmp_path / "tiny_llama" / "config.json"
    fields = json.loads(config_file.read_text())
    config_file.write_text(json.dumps(fields | {"model_type": "resnet"}))
    with pytest.raises(InputError, match="resnet"):
        inspect_model(options)
    config_file.write_text(json.dumps(fields))
    (tmp_path / "tiny_llama" / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"no tokenizer\.json"):
        inspect_model(options)
    (tmp_path / "tiny_llama" / "checkpoints").mkdir()
    with pytest.raises(InputError, match="jaxpe spectral"):
        inspect_model(options)
