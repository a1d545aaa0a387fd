"""Test tags of words on a few sentences, trained as by a user."""

import csv
import json

import numpy as np
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

import retable
from pipelines.config.project import CONF
from retable.corpora.columns import TaggedSentence
from retable.metrics.roles import role_counts
from retable.metrics.spans import span_f1
from retable.models.vector_files import write_word2vec
from retable.training.weights import read_weights
from tests.metrics.test_spans import conlleval
from tests.pipelines.conftest import ELMO

NOUNS, VERBS = ("Dogs", "cats", "birds", "mice"), ("run", "see", "eat")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Write files in columns; chunks are a noun phrase, a verb, and possibly one or two more noun phrases."""
    folder = tmp_path_factory.mktemp("data")
    for split, n in (("train", 60), ("test", 20)):
        generator = np.random.default_rng(n)
        lines = []
        for _ in range(n):
            lines += ["the DT B-NP", f"{generator.choice(NOUNS)} NN I-NP", f"{generator.choice(VERBS)} VB B-VP"]
            lines += [f"{generator.choice(NOUNS)} NN B-NP"] * int(generator.integers(3)) + [". . O", ""]
        (folder / f"{split}.txt").write_text("\n".join(lines))
    write_word2vec(folder / "vectors.bin", ["dogs", "run", "zebras"], np.eye(3, 6, dtype=np.float32))
    return folder


@pytest.fixture(scope="module")
def overrides(data):
    return [
        "task=conll2000_chunking",
        "recipe=taggers/bilstm_crf",
        *(f"task.sentences.{split}={data / f'{split}.txt'}" for split in ("train", "test")),
        "task.sentences.held_out=10",
        *("model.d_embedding=6", "model.d_character=3", "model.filters=[[2,4]]", "model.d_model=12"),
        *("epochs=6", "finetuning.batch_size=8", "dropout=0.0", "optimizer.lr=0.04"),
    ]


CRF, ON_VECTORS = "from_scratch/conll2000_chunking/bilstm_crf-1", "finetune/conll2000_chunking/bilstm_tagger-1"


@pytest.fixture(scope="module")
def tagged(project, overrides, data):
    project.succeed("finetune", *overrides)
    others = [part for part in overrides if not part.startswith("recipe=")]
    embedding = f"embedding={data / 'vectors.bin'}"
    project.succeed("finetune", *others, "recipe=taggers/bilstm_tagger", embedding, "epochs=0.2")
    return project


@pytest.mark.parametrize("split", ["validation", "test"])
def test_conlleval_reads_the_predictions_as_they_are(tagged, split):
    """Tags and predictions are the last two columns of all lines; a blank line ends a sentence."""
    for name in (CRF, ON_VECTORS):
        text = (tagged.folder / "outputs" / name / f"{split}.tags.txt").read_text(encoding="utf-8").strip()
        sentences = [[line.split(" ") for line in block.split("\n")] for block in text.split("\n\n")]
        assert {len(row) for rows in sentences for row in rows} == {3}
        correct, predicted, labelled = conlleval(*([[row[at] for row in rows] for rows in sentences] for at in (1, 2)))
        assert tagged.read(f"{name}/metrics.json")[f"tagging/{split}/f1"] == pytest.approx(
            2 * correct / (predicted + labelled)
        )
    assert tagged.read(f"{CRF}/metrics.json")[f"tagging/{split}/f1"] > 0.95


def test_vectors_come_in_lower_case_and_bring_their_words(tagged):
    """ "Dogs" gets the vector of "dogs"; "zebras" is not in the text."""
    run = tagged.read(f"{ON_VECTORS}/run.json")
    assert sum("vectors.bin" in name for name in run["digests"]) == 1
    weights = read_weights(tagged.folder / "outputs" / ON_VECTORS / "model.safetensors")
    assert len(weights["model.input.embedding.weight"]) == run["vocab_size"] == 11  # <unk>, <eos>, and nine words


def test_words_with_a_vector_are_counted(tagged, data):
    """ "Dogs" is found in lower case, and "run" unchanged."""
    counted = tagged.read(f"{ON_VECTORS}/run.json")["coverage"]
    assert counted["words"] == {"unchanged": 1, "lower": 1, "zeros": 0, "convention": 0, "none": 7}
    words = [line.split()[0] for line in (data / "test.txt").read_text().splitlines() if line]
    assert counted["tokens"]["test"] == pytest.approx(sum(word in ("Dogs", "run") for word in words) / len(words))
    assert counted["types"]["test"] == pytest.approx(2 / len({*words}))


def test_mistakes_about_vectors_are_named(tagged, overrides, data):
    (data / "glove.txt").write_text("Dogs 1 2 3 4 5\nsee 1 0 1 0 1\n")
    others = [part for part in overrides if not part.startswith("recipe=")] + ["recipe=taggers/bilstm_tagger"]
    glove = f"embedding={data}/glove.txt"
    for settings, message in (
        ([glove], "glove.txt have 5 dimensions, but the model's have 6; write model.d_embedding=5"),
        ([f"{glove}.gz"], "glove.txt.gz is missing"),
        ([glove, "+lookup=[upper]"], "should be 'lower', 'zeros' or 'convention'"),
        (["+lookup=[lower]"], "lookup= is for word vectors from a file; write embedding=FILE, or remove lookup"),
        (["+rescale=false"], "rescale= is for word vectors from a file; write embedding=FILE, or remove rescale"),
        ([glove, "+rescale=2"], "rescale=2 should be "),
        (["freeze_embedding=true"], "freeze_embedding=true would freeze random vectors"),
    ):
        line = tagged.refuse("finetune", *others, *settings)
        assert message in line, line
    line = tagged.refuse("finetune", *overrides[2:5], "task=conll2000_pos", "recipe=taggers/huang_crf", "+lookup=[]")
    assert "lookup= is for word vectors from a file" in line


def test_few_words_with_a_vector_give_a_warning(tagged, overrides, data):
    settings = [f"embedding={data}/few.txt", "+lookup=[]", "epochs=0.2"]
    for content, warned in (("eat 1 2 3 4 5 6\nzebras 1 0 0 0 0 0\n", True), ("the 1 2 3 4 5 6\n", False)):
        (data / "few.txt").write_text(content)
        done = tagged.succeed("finetune", *overrides, *settings, "out=conll2000_chunking/few")
        assert ("warning: fewer than 10% of the training tokens have a vector" in done.stderr) == warned


def test_features_of_words_are_kept_in_the_cell(project, overrides):
    """The tagger of the folder has the tags of the evaluation, and reads words of any spelling."""
    settings = [part for part in overrides if part.startswith("task.sentences")]
    project.succeed(
        "finetune", "task=conll2000_pos", "recipe=taggers/huang_lstm_crf", *settings, "task.cutoff=2",
        "model.d_embedding=4", "model.d_model=6", "epochs=3", "finetuning.batch_size=20",
    )  # fmt: skip
    cell = "from_scratch/conll2000_pos/huang_lstm_crf-1"
    learnt, run = (project.read(f"{cell}/{name}.json") for name in ("learnt", "run"))
    assert run["features"] == len(learnt["features"]) and {"2 the", "7 <2<", "suffix gs"} <= {*learnt["features"]}
    assert project.read(f"{cell}/metrics.json")["tagging/test/f1"] > 0.95
    text = (project.folder / "outputs" / cell / "test.tags.txt").read_text(encoding="utf-8").strip()
    sentences = [[line.split(" ") for line in block.split("\n")] for block in text.split("\n\n")]
    tagger = retable.load(project.folder / "outputs" / cell)
    found = tagger.tag([[word for word, *_ in rows] for rows in sentences])
    assert [[tag for _, tag in row] for row in found] == [[tag for *_, tag in rows] for rows in sentences]
    assert tagger.tag("the/DT Zebras/NN run/VB ./.")[0][0] == ("the/DT", "B-NP")


def test_a_tagger_on_a_pretrained_elmo(own):
    elmo = [f"model.elmo.{each.removeprefix('model.')}" for each in ELMO[1:4]]
    own.succeed(
        "finetune", "task=grammar_pos", "recipe=taggers/elmo_tagger", "init=pretrain/grammar_tiny/elmo-1", *elmo,
        "model.d_model=8", "model.d_embedding=6", "+max_steps=4", "task.sentences.text.scale=0.1",
        "task.sentences.text.words={train: 800, validation: 100, test: 200}",
    )  # fmt: skip
    cells = ("pretrain/grammar_tiny/elmo-1", made := "finetune/grammar_pos/elmo_tagger-1")
    theirs, ours = (read_weights(own.folder / "outputs" / cell / "model.safetensors") for cell in cells)
    shared = [name for name in theirs if name.startswith("model.")]
    assert shared and all((theirs[name] == ours[name.replace("model.", "model.elmo.", 1)]).all() for name in shared)
    assert own.read(f"{made}/run.json")["made_from"] == ["pretrain/grammar_tiny/elmo-1"]
    metrics = own.read(f"{made}/metrics.json")
    assert "tagging/test/accuracy" in metrics and "tagging/test/f1" not in metrics


def test_probes_of_what_was_pretrained(own):
    own.succeed(
        "evaluate", "corpus=grammar_tiny", "cell=grammar_tiny/elmo-1", "benchmark=probes",
        "benchmark.probes.text.words={train: 400, test: 300}",
    )  # fmt: skip
    metrics = own.read("evaluate/grammar_tiny/elmo-1/metrics.json")
    layers = {f"probes/layer_{k}/{kind}{end}" for k in range(3) for kind in ("number", "part_of_speech")
              for end in ("", "_control")}  # fmt: skip
    assert layers <= {*metrics}
    assert metrics["probes/layer_0/part_of_speech"] > metrics["probes/majority/part_of_speech"]


def write_roles(path, n):
    """Write CoNLL-2012's columns: who sees whom; in every other sentence, that the latter runs."""
    generator, lines = np.random.default_rng(n), []
    for k in range(n):
        one, other = generator.choice(NOUNS, 2)
        rows = [("the", "(ARG0*", "*"), (one, "*)", "*"), ("see", "(V*)", "*"), ("the", "(ARG1*", "(ARG0*")]
        rows += [(other, "*)", "*)"), ("run", "*", "(V*)"), (".", "*", "*")]
        for i, (word, *columns) in enumerate(rows):
            roles = columns[: 1 + k % 2]
            lines.append(" ".join(["nw/x", "0", str(i), word, "X", "*", "-", "-", "-", "-", "*", *roles, "-"]))
        lines.append("")
    path.write_text("\n".join(lines))


def test_semantic_roles_of_given_predicates(project, tmp_path):
    files = {"train": 60, "validation": 10, "test": 20}
    for split, n in files.items():
        write_roles(tmp_path / split, n)
    project.succeed(
        "finetune", "task=conll2012_roles", "recipe=taggers/role_labeller",
        *(f"task.sentences.{split}={tmp_path / split}" for split in files),
        *("model.d_embedding=6", "model.d_character=3", "model.filters=[[2,4]]", "model.d_model=12"),
        *("model.d_predicate=4", "epochs=5", "finetuning.batch_size=8", "dropout=0.0", "optimizer.lr=0.05"),
    )  # fmt: skip
    folder = project.folder / "outputs/from_scratch/conll2012_roles/role_labeller-1"
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["tagging/test/f1"] > 0.95  # the second "the" has another role for each predicate, or none
    propositions = [part.split("\n") for part in (folder / "test.tags.txt").read_text().strip().split("\n\n")]
    assert [line.split(" ")[:2] for line in propositions[1]][2] == ["see", "see"] and len(propositions) == 30
    gold, predicted = ([[line.split(" ")[k] for line in part] for part in propositions] for k in (2, 3))
    counts = role_counts(gold, predicted)
    assert span_f1(counts.sum(axis=0)) == pytest.approx(metrics["tagging/test/f1"])
    with (folder / "units.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == "test"]
    assert len(rows) == 20  # all rows of a sentence's predicates are one unit
    assert [int(row["words"]) for row in rows] == [7, 14] * 10
    assert [int(row["spans_labelled"]) for row in rows] == [2, 3] * 10 and counts.sum(axis=0)[2] == 50
    run = json.loads((folder / "run.json").read_text())
    assert run["tags"] == 6  # B and I of ARG0 and ARG1, B of V, O
    words = len({"<unk>", "<eos>", "the", "see", "run", ".", *NOUNS})
    assert run["vocab_size"] == words


def test_semantic_roles_of_conll_2005(tmp_path):
    """The configuration names the columns of words and props, which are next to each other."""
    settings = OmegaConf.load(CONF / "task/conll2005_roles.yaml").task.sentences
    for split in ("train", "validation", "test"):
        settings[split] = str(tmp_path / split)
        (tmp_path / split).write_text("He - (A0* (A0*\nand - * *\nI - *) *)\ncame come (V*) *\nsaw see * (V*)\n")
    words, both = ["He", "and", "I", "came", "saw"], ["B-A0", "I-A0", "I-A0"]
    assert instantiate(settings).splits()["test"] == [
        TaggedSentence(words, [*both, "B-V", "O"], 3), TaggedSentence(words, [*both, "O", "B-V"], 4)
    ]  # fmt: skip


def test_frozen_parts_need_pretrained_weights(project, overrides):
    others = [part for part in overrides if not part.startswith(("model.", "recipe="))]
    line = project.refuse("finetune", *others, "recipe=taggers/elmo_tagger")
    assert "init=random leaves the frozen parts of ELMoTagger" in line
