from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from retable.core.errors import UsageError
from retable.corpora.columns import TaggedSentence
from retable.corpora.conllu import read_conllu
from retable.data.spelling import Vocabulary
from retable.metrics.spans import span_metrics
from retable.models.estimated_taggers import PatternTagger
from retable.models.lstm_tagger import LSTMTagger
from retable.models.tagger import BiLSTMTagger
from retable.tasks.tagged import TaggedFiles, TaggedText, TaggingTask


@pytest.fixture
def paths(tmp_path):
    for split, n in (("train", 7), ("test", 2)):
        text = "".join(f"{split}{i} X B-NP\nend Y O\n\n" for i in range(n))
        (tmp_path / f"{split}.txt").write_text(text)
    return {split: str(tmp_path / f"{split}.txt") for split in ("train", "test")}


def test_validation_is_a_file_or_held_out_of_training(paths):
    task = TaggedFiles(**paths, held_out=3)
    splits = task.splits()
    assert list(splits) == ["train", "validation", "test"] and len(task.inputs) == 2
    assert [len(rows) for rows in splits.values()] == [4, 3, 2]
    first = [sentence.words[0] for split in ("train", "validation") for sentence in splits[split]]
    assert sorted(first) == [f"train{i}" for i in range(7)]
    assert splits["test"][0] == TaggedSentence(["test0", "end"], ["B-NP", "O"])
    assert TaggedFiles(**paths, held_out=3).splits() == splits
    task = TaggedFiles(**paths, validation=paths["test"])
    assert task.splits()["validation"] == task.splits()["test"] and len(task.splits()["train"]) == 7
    assert len(task.inputs) == 3
    with pytest.raises(UsageError, match="held_out=7 leaves no training sentence of the 7"):
        TaggedFiles(**paths, held_out=7).splits()


@pytest.mark.parametrize("tag", ["NP-B", "NP", "X", "B_NP"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_a_tag_of_no_scheme_is_refused_by_file_and_line(paths, split, tag):
    Path(paths[split]).write_text(f"end{tag} Y O\nnone B-{tag} O\n\nit Z B-{tag}-2\nis Z {tag}\n\n")
    task = TaggingTask(TaggedFiles(**paths, validation=paths["test"]), "IOB2")
    with pytest.raises(UsageError, match=rf"^{paths[split]}, line 5: '{tag}' is not a chunk tag; write O or, as in"):
        task.examples("train")


def test_a_sentence_is_held_out_with_all_its_predicates():
    twice = [TaggedSentence([f"word{i}", "sees"], ["O", "V"], place) for i in range(6) for place in (0, 1)]
    task = TaggedFiles("a.txt", "b.txt", held_out=2, read=lambda path: twice)
    splits = task.splits()
    train, validation = ({each.words[0] for each in splits[split]} for split in ("train", "validation"))
    assert (len(train), len(validation)) == (4, 2) and not train & validation
    assert (len(splits["train"]), len(splits["validation"])) == (8, 4)
    with pytest.raises(UsageError, match="held_out=6 leaves no training sentence of the 6"):
        TaggedFiles("a.txt", "b.txt", held_out=6, read=lambda path: twice).splits()


@pytest.mark.parametrize("settings", [{}, {"held_out": 2, "validation": "some.txt"}])
def test_one_way_to_validate(paths, settings):
    with pytest.raises(UsageError, match="set either task"):
        TaggedFiles(**paths, **settings)


def test_other_formats_and_texts_that_come_with_labels(tmp_path):
    row = "1\tdogs\tdog\tNOUN\tNNS\t_\t0\troot\t_\t_\n\n"
    path = tmp_path / "a.conllu"
    path.write_text(row)
    for tag, tag_read in (("upos", "NOUN"), ("xpos", "NNS")):
        task = TaggedFiles(str(path), str(path), str(path), read=partial(read_conllu, tag=tag))
        assert task.splits()["test"] == [TaggedSentence(["dogs"], [tag_read])]
    labels = {"x": ["1"], "y": ["2"]}
    text = SimpleNamespace(inputs=[], sentences=lambda split: [SimpleNamespace(words=[split], labels=labels)])
    expected = {split: [TaggedSentence([split], ["2"])] for split in ("train", "validation", "test")}
    assert TaggedText(text, "y").splits() == expected


def tagging(sentences, scheme=None, roles=False) -> TaggingTask:
    source = SimpleNamespace(inputs=[], splits=lambda: dict.fromkeys(("train", "validation", "test"), sentences))
    return TaggingTask(source, scheme, roles)


def test_units_are_sentences_and_add_up_to_the_metrics():
    gold = [["B-x", "I-x", "O"], ["O"], ["O", "B-x"]]
    guessed = [["B-x", "I-x", "B-x"], ["O"], ["O", "O"]]
    task = tagging([TaggedSentence(["w"] * len(tags), tags) for tags in gold], "IOB2")
    assert task.tags == ["B-x", "I-x", "O"] and task.selects == "f1"
    padded = [[task.tags.index(tag) for tag in [*row, "O", "O"]][:3] for row in guessed]
    units = task.units(task.examples("test"), padded)
    assert units.columns.tolist() == ["unit", "words", "right", "spans_right", "spans_predicted", "spans_labelled"]
    assert units.drop(columns="unit").to_numpy().tolist() == [[3, 2, 1, 2, 1], [1, 1, 0, 0, 0], [2, 1, 0, 0, 1]]
    metrics = task.score(units)
    assert metrics.pop("accuracy") == pytest.approx(4 / 6)
    assert metrics == pytest.approx(span_metrics(gold, guessed))
    assert task.score(units[["unit", "words", "right"]]) == pytest.approx({"accuracy": 4 / 6})


def test_a_unit_is_all_predicates_of_a_sentence_whose_own_span_is_no_span():
    """The predicate only counts among the words: as a span, it would make F1 2 · 2 / (3 + 3)."""
    words = ["a", "b", "c", "d"]
    sentences = [TaggedSentence(words, ["B-A0", "B-V", "I-V", "B-A1"], 1), TaggedSentence(words, ["O"] * 4, 2)]
    task = tagging(sentences, "IOB2", roles=True)
    guessed = [["B-A0", "B-V", "I-V", "B-A0"], ["O"] * 4]
    units = task.units(sentences, [[task.tags.index(tag) for tag in row] for row in guessed])
    assert units.drop(columns="unit").to_numpy().tolist() == [[8, 7, 1, 2, 2]]
    assert task.score(units) == pytest.approx({"accuracy": 7 / 8, "precision": 0.5, "recall": 0.5, "f1": 0.5})
    assert [*task.words(sentences)] == [words]


@pytest.mark.parametrize(("roles", "d_predicate", "message"), [
    (True, 0, "the tags concern a predicate, but BiLSTMTagger has no predicate input; .*/role_lab"),
    (False, 7, r"the model needs them \(model.d_predicate=7\); write recipe=taggers/bilstm_crf"),
])  # fmt: skip
def test_a_task_its_sentences_and_a_model_agree_on_predicates(roles, d_predicate, message):
    with pytest.raises(UsageError, match=message):
        tagging([], roles=roles).require(BiLSTMTagger, d_predicate)
    problem = f"task.roles={str(roles).lower()}, but some sentences have {'no' if roles else 'a'} predicate"
    with pytest.raises(UsageError, match=problem):
        tagging([TaggedSentence(["a"], ["O"], None if roles else 0)], roles=roles).examples("train")


def pairs_of(words):
    """Features for tests: each word, and its pair with the next word."""
    for word, after in zip(words, [*words[1:], "."], strict=True):
        yield [word, f"{word} {after}"]


def test_features_are_those_of_enough_training_words():
    train = [["a", "b", "a"], ["a", "b"], ["c", "a"]]
    sentences = {"train": train, "test": [["a", "b", "d"], ["d"]]}
    splits = {name: [TaggedSentence(words, ["O"] * len(words)) for words in rows] for name, rows in sentences.items()}
    source = SimpleNamespace(inputs=[], splits=lambda: splits)
    settings = {"features": pairs_of, "cutoff": 2, "batch_unit": "words", "loss_unit": "sentences"}
    task = TaggingTask(source, **settings)
    assert task.features == ["a", "a b", "b", "a ."] and task.facts({}) == {"tags": 1, "features": 4}
    text = Vocabulary.of_texts(train, sentences["test"])
    model = LSTMTagger(text.vocab_size, text.words, 3, 2, 1, 0.0)
    objective = task.objective(model, text, dropout=0.0, crf=False)
    assert objective.features.weight.shape == (5, 1)
    encoded = task.encode(model, text, task.examples("test"))
    assert encoded.pad([0, 1]).features.tolist() == [[[1, 2], [3, 0], [0, 0]], [[0, 0], [0, 0], [0, 0]]]
    again = TaggingTask(source, **settings)
    again.recall(task.learnt())  # what a cell has written, without the training split
    del splits["train"]
    assert again.encode(model, text, task.examples("test")).pad([0]).features.tolist() == [[[1, 2], [3, 0], [0, 0]]]
    assert TaggingTask(source).features == []


@pytest.mark.parametrize("settings", [{"features": pairs_of}, {"batch_unit": "words"}, {"loss_unit": "sentences"}])
def test_a_model_that_is_trained_at_once_has_no_settings_of_batches(settings):
    task = TaggingTask(SimpleNamespace(inputs=[]), **settings)
    with pytest.raises(UsageError, match=r"PatternTagger is not trained in batches; remove task\.features, "):
        task.require(PatternTagger, 0)
    TaggingTask(SimpleNamespace(inputs=[])).require(PatternTagger, 0)


@pytest.mark.parametrize("world", [1, 2])
def test_batches_of_words_whose_losses_are_averaged_over_sentences(world):
    rows = [["w"] * n for n in (3, 1, 4, 2, 5, 3)]
    sentences = [TaggedSentence(words, ["O"] * len(words)) for words in rows]
    source = SimpleNamespace(inputs=[], splits=lambda: {"train": sentences})
    task = TaggingTask(source, batch_unit="words", loss_unit="sentences")
    text = Vocabulary.of_texts(rows, [])
    batches = task.batches(task.encode(LSTMTagger(text.vocab_size, text.words, 3, 2, 1, 0.0), text, sentences), 6, 0)
    epoch = [[batches.batch(step, rank, world) for rank in range(world)] for step in range(batches.steps_per_epoch)]
    words = [sum(int(part.n_words.sum()) for part in parts if part.weight) for parts in epoch]
    assert sum(words) == 18 and max(words) <= 6 and len(words) == 4
    for parts in epoch:  # a process's mean times its weight, averaged over processes, is the mean of sentences' sums
        sentences = sum(len(part.n_words) for part in parts if part.weight)
        weights = [world * int(part.n_words.sum()) / sentences for part in parts if part.weight]
        assert [part.weight for part in parts if part.weight] == pytest.approx(weights)
