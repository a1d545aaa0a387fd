"""Test what cells of every kind write with the same configurations: steered models, T5s, prefix LMs, translators."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import retable
from retable.data.corruption import START
from retable.evaluation.source_attention import attention_to_source
from retable.generation.beam_search import BeamSearch
from retable.generation.conditioned import Conditioned
from retable.generation.contrastive_search import ContrastiveSearch
from retable.generation.fudge import FUDGE
from retable.generation.next_token import next_token
from retable.generation.sampling import Greedy, Sampling, seeded
from retable.inference.discriminator import load_discriminator
from tests.pipelines.conftest import CELLS, TINY

LSTM, STEERING = "pretrain/grammar_tiny/elman-1", "from_scratch/grammar_tiny/sentiment_prefixes-lstm_prefixes-1"
T5 = ["tokenizer=word_marked", "model.d_model=16", "model.n_heads=2", "model.n_layers=1", "model.d_ff=16",
      "batches.batch_size=4", "batches.length=16", "+max_steps=6"]  # fmt: skip
RNN, SMALL = "rnn_translation_grammar", CELLS["from_scratch/grammar_pairs_tiny/rnn_translation_grammar-1"]


@pytest.fixture(scope="module")
def writers(own):
    run = own.succeed
    run("pretrain", TINY, "recipe=t5/t5", *T5, "system=writing_t5")
    run("pretrain", TINY, "recipe=t5/prefix_lm", *T5, "system=writing_prefix")
    run(*SMALL, f"recipe=translation/{RNN}_none", "system=writing_blind")
    run(*(part for part in SMALL if "d_embedding" not in part), "model.n_layers=1", "model.d_ff=16", "decoding=beam",
        "recipe=translation/transformer_translation_grammar", "system=writing_transformer")  # fmt: skip
    return own


@pytest.fixture(autouse=True)
def there(own, request, monkeypatch):
    if request.node.get_closest_marker("long"):
        request.getfixturevalue("writers")
    monkeypatch.chdir(own.folder)


@pytest.fixture
def printed(command):
    """Run the command without a mistake. Return its output."""

    def printed(*arguments: str) -> str:
        code, out, err = command(*arguments)
        assert code == 0, err
        return out

    return printed


def texts(cell: str) -> list[dict]:
    return [json.loads(line) for line in Path("outputs/generate", cell, "samples.jsonl").read_text().splitlines()]


def beginning(cell: str = LSTM) -> str:
    return " ".join(retable.load(cell).tokenizer.words[40:42])


def test_every_beginning_of_the_corpus_sentences_is_learnt_and_whole_ones_are_classified(printed):
    units = pd.read_csv(Path("outputs", STEERING, "units.csv"))
    lines = [line for line in Path("outputs/prepare/grammar_tiny/test.txt").read_text().splitlines() if line]
    rows = units[units["split"] == "test"]
    assert len(rows) == len(lines) and set(units["label"]) <= {0, 1, 2}
    names = np.array(["negative", "neutral", "positive"])[rows["prediction"].to_numpy()[:9].astype(int)]
    assert retable.load(STEERING).classify(lines[:9]) == names.tolist()
    _, predicted = printed("predict", STEERING, "--text", lines[0]).splitlines()
    assert predicted.split("\t")[:2] == [lines[0], names[0]]


def test_a_steered_cell_says_what_it_was_steered_by_and_what_the_model_alone_thinks(own):
    settings = ["decoding=fudge", f"decoding.discriminator.cell={STEERING}", "decoding.label=negative"]
    settings += ["decoding.strategy.max_new_tokens=8", "decoding.strategy.num_return_sequences=3"]
    own.succeed("generate", "cell=grammar_tiny/elman-1", *settings, f"prompts=[{beginning()},'']")
    rows = texts("grammar_tiny/elman-1-fudge")
    system, steering = retable.load(LSTM), load_discriminator(STEERING)
    eos = system.tokenizer.boundary
    prompts = [[eos, *system.tokenizer.encode(prompt)] for prompt in (beginning(), "")]
    fudge = FUDGE(Sampling(seeded(1), 8, num_return_sequences=3), steering, "negative")
    completions = [each for several in fudge(next_token(system.system), prompts, eos) for each in several]
    assert [row["tokens"] for row in rows] == [len(each.ids) for each in completions]
    for row, each in zip(rows, completions, strict=True):
        assert row["text"] == system.tokenizer.decode([i for i in each.ids if i != eos])
        assert row["log_prob"] == pytest.approx(each.log_prob, abs=1e-3)
        ended = each.ids[-1] == eos
        (scored,) = system.score(" ".join([row["prompt"], row["text"]]).strip(), end=ended)
        before = system.score(row["prompt"])[0].log_prob if row["prompt"] else 0.0
        assert scored.log_prob - before == pytest.approx(row["log_prob"], abs=1e-3)
    run = json.loads(Path("outputs/generate/grammar_tiny/elman-1-fudge/run.json").read_text())
    assert run["made_from"] == [LSTM, STEERING] and f"outputs/{STEERING}/model.safetensors" in run["digests"]


def test_steering_by_the_command_and_in_python_is_the_same(printed):
    settings = {"strategy": "sample", "max_new_tokens": 7, "seed": 3, "discriminator": STEERING, "label": "positive"}
    begun = beginning()
    (text,) = retable.load(LSTM).continue_(begun, **settings)
    options = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    assert printed("generate", LSTM, begun, *options) == f"{begun} {text}".strip() + "\n"
    beams = [*options[2:], "--strategy", "beam", "--n", "2"]
    rows = [row.split(maxsplit=1) for row in printed("generate", LSTM, begun, *beams).splitlines()]
    assert len(rows) == 2 and all(text.startswith(begun) for _, text in rows)


@pytest.mark.long
def test_what_steering_gives_and_costs_is_measured(own):
    scale = "benchmark.steering.samples=20"
    own.succeed("evaluate", TINY, "cell=grammar_tiny/elman-1", "benchmark=steering", scale)
    folder = Path("outputs/evaluate/grammar_tiny/elman-1")
    metrics, run = (json.loads((folder / f"{name}.json").read_text()) for name in ("metrics", "run"))
    assert metrics["steering/sampled/n"] == metrics["steering/steered/n"] == 40
    assert {"nats_token", "label", "grammatical"} <= {name.rpartition("/")[2] for name in metrics}
    assert STEERING in run["made_from"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["writing_t5", "writing_prefix"])
def test_what_reads_first_has_its_prompt_as_in_training(own, name, printed):
    """Its inputs end with the mark that also ends what it writes; nothing else is before or after them."""
    system = retable.load(f"pretrain/grammar_tiny/{name}-1")
    tokenizer = system.tokenizer
    (end,) = tokenizer.encode("\n")
    prompts = [" ".join(tokenizer.words[i] for i in places) for places in ([150, 151], [160, 170, 180], [190])]
    begun = [[*tokenizer.encode(prompt), end] for prompt in prompts]
    model = Conditioned(system.system.objective, START)
    for strategy, by in (
        ("greedy", Greedy(6)),
        ("beam", BeamSearch(3, 6)),
        ("contrastive", ContrastiveSearch(6, 8, 0.6)),
    ):
        best_ids = [best.ids for best, *_ in by(model, begun, end)]
        expected = [" ".join(tokenizer.decode([i for i in ids if i != end]).split()) for ids in best_ids]
        changed = {"beam": ["decoding.num_beams=3"]}.get(strategy, [])
        settings = [f"decoding={strategy}", "decoding.max_new_tokens=6", *changed]
        own.succeed("generate", f"cell=grammar_tiny/{name}-1", *settings, f"prompts={prompts}")
        written = [" ".join(row["text"].split()) for row in texts(f"grammar_tiny/{name}-1-{strategy}")]
        assert written == expected
        more = {"num_beams": 3} if strategy == "beam" else {}
        assert [
            " ".join(text.split()) for text in system.continue_(prompts, strategy=strategy, max_new_tokens=6, **more)
        ] == expected
    assert not system.continues_prompt
    assert (
        printed("generate", f"{name}-1", prompts[0], "--max-new-tokens", "6").strip()
        == system.continue_(prompts[0], max_new_tokens=6)[0]
    )


@pytest.mark.parametrize(("name", "decoding"), [
    (RNN, "greedy"), pytest.param("writing_transformer", "beam", marks=pytest.mark.long)
])  # fmt: skip
def test_a_translator_decodes_by_the_same_configurations(own, name, decoding):
    cell = f"grammar_pairs_tiny/{name}-1"
    sources = Path("outputs/prepare/grammar_pairs_tiny/test.source.txt").read_text().splitlines()
    expected = Path("outputs/from_scratch", cell, "translations.test.txt").read_text().splitlines()
    own.succeed(
        "generate", "stage=from_scratch", f"cell={cell}", f"decoding={decoding}", "decoding.max_new_tokens=12",
        "n_prompts=12",
    )  # fmt: skip
    rows = texts(f"{cell}-{decoding}")
    assert [row["prompt"] for row in rows] == sources and [row["text"] for row in rows] == expected


@pytest.mark.long
@pytest.mark.parametrize("name", [RNN, "writing_transformer"])
@pytest.mark.parametrize(("decoding", "longest"), [("top_p", 5), ("typical", 5), ("contrastive", 5), ("exact", 1)])
def test_a_translator_decodes_by_every_strategy(own, name, decoding, longest):
    cell = f"grammar_pairs_tiny/{name}-1"
    settings = [f"cell={cell}", f"decoding={decoding}", f"decoding.max_new_tokens={longest}", "n_prompts=1"]
    own.succeed("generate", "stage=from_scratch", *settings)
    (row,) = texts(f"{cell}-{decoding}")
    assert row["tokens"] <= longest and row["log_prob"] < 0


@pytest.mark.parametrize("name", [RNN, pytest.param("writing_transformer", marks=pytest.mark.long)])
def test_translations_of_ones_own_with_a_picture_of_what_was_looked_at(name, printed, tmp_path):
    sources = Path("outputs/prepare/grammar_pairs_tiny/test.source.txt").read_text().splitlines()[:2]
    system = retable.load(f"from_scratch/grammar_pairs_tiny/{name}-1")
    expected = system.translate(sources)
    assert system.translate([]) == [] and system.attend([]) == []
    assert printed("translate", f"{name}-1", *sources).splitlines() == expected
    text = printed("translate", f"{name}-1", *sources, "--attention", str(tmp_path / f"{name}.svg"))
    assert text.splitlines() == expected
    for number, (source, attended) in enumerate(zip(sources, system.attend(sources), strict=True), 1):
        assert attended.text == expected[number - 1]
        assert attended.source == [*source.split(), "<eos>"] and attended.written[:-1] == attended.text.split()
        np.testing.assert_allclose(attended.weights.sum(axis=1), 1, rtol=1e-4)
        ids = [*system.tokenizer.encode(attended.text), system.tokenizer.boundary]
        read = [*system.tokenizer.encode(source), system.tokenizer.boundary]
        np.testing.assert_allclose(attended.weights, attention_to_source(system.objective, read, ids), rtol=1e-5)
        picture = (tmp_path / f"{name}-{number}.svg").read_text()
        assert picture.startswith("<svg") and all(f">{word}<" in picture for word in source.split())
    printed("translate", f"{name}-1", sources[0], "--attention", str(tmp_path / "one.svg"))
    assert (tmp_path / "one.svg").exists()


@pytest.mark.parametrize(("arguments", "message"), [
    (["translate", f"{RNN}-1", "the zebra saw the yak"], f"{RNN}-1: unknown words zebra, saw, yak; use"),
    (["translate", f"{RNN}-1", " "], "one of the texts is empty; remove the empty text"),
    (["translate", "elman-1", "the"], "elman-1 cannot translate; it can perplexity, score"),
    pytest.param(["translate", "writing_blind-1", "the", "--attention", "a.svg"], "has no attention to the source",
                 marks=pytest.mark.long),
    (["translate", f"{RNN}-1", "the", "--attention", "a.png"], "--attention a.png must end in .svg; write a.svg"),
    (["translate", f"{RNN}-1", "the", "--attention", "none/a.svg"], "folder none does not exist; make it first"),
    (["generate", "elman-1", "--temperature", "0.5"], "--strategy greedy does not use --temperature; write"),
    (["generate", "elman-1", "--strategy", "beam", "--top-k", "5"],
     "--strategy beam does not use --top-k; write --strategy sample or contrastive"),
    (["generate", "elman-1", "--label", "positive"], "--label positive needs a discriminator; add"),
    (["generate", "elman-1", "--discriminator", STEERING], "the discriminator has no label=; write"),
    (["generate", "elman-1", "--discriminator", "sentiment-bilstm-1", "--label", "positive"],
     "sentiment-bilstm-1 cannot classify the beginning of a text; train a system that can, as in"),
], ids=lambda part: " ".join(part[:2]) if isinstance(part, list) else "")  # fmt: skip
def test_a_mistake_is_one_line(command, arguments, message):
    code, out, err = command(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1) and message in err


@pytest.mark.parametrize(("settings", "message"), [
    (["stage=from_scratch", f"cell={STEERING.partition('/')[2]}"], "writes no texts; use a translator"),
    pytest.param(["cell=grammar_tiny/writing_t5-1", "decoding=fudge", f"decoding.discriminator.cell={STEERING}"],
                 "has a different tokenizer from the language model; train it with", marks=pytest.mark.long),
    (["cell=grammar_tiny/elman-1", "decoding=fudge", "decoding.discriminator.cell=none-1"], "no cell 'none-1'"),
], ids=["a classifier", "other tokens", "no cell"])  # fmt: skip
def test_a_mistake_of_the_stage_is_one_line(own, settings, message):
    assert message in own.refuse("generate", *settings, "prompts=['']")


def test_a_discriminator_is_that_of_its_cell():
    steering, loaded = load_discriminator(STEERING), retable.load(STEERING)
    assert steering.labels == list(loaded.labels) and steering.tokens == loaded.text.digest
    text = "the " + beginning()
    ids = [loaded.text.boundary, *loaded.text.encode(text), loaded.text.boundary]
    log_probs, _ = steering.extend(torch.tensor([ids]), steering.start(1))
    np.testing.assert_allclose(log_probs.exp(), loaded.probabilities(text), rtol=1e-4)
