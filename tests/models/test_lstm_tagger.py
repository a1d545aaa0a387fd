"""The taggers of Huang, Xu and Yu (2015): features by hand and by count, and what the states depend on."""

from collections import Counter

import pytest
import torch
from hydra.utils import instantiate

from pipelines.config.project import CONF
from retable.models.lstm_tagger import LSTMTagger, spelling_features, token_features
from retable.models.template_crf import features as context_features
from retable.nn.bidirectional_lstm import mirrored, taken
from tests.pipelines.recipes import composed

WORDS = ["<unk>", "</s>", "the/DT", "The/DT", "dog/NN", "dog/VB", "barks/VBZ", "1\\/2/CD"]
IDS, LENGTHS = torch.tensor([[1, 3, 4, 6, 1], [1, 7, 5, 1, 2]]), torch.tensor([5, 4])
SENTENCES = [["The/DT", "U.S./NNP", "won/VBD"], ["won/VBN"], ["He/PRP", "won/VBD", "the/DT", "U.S./NNP"]]


def tagger(directions: int) -> LSTMTagger:
    torch.manual_seed(0)
    return LSTMTagger(6, WORDS, d_embedding=3, d_model=4, directions=directions, dropout=0.0)


def test_words_share_a_vector_whatever_their_part_of_speech_but_words_with_a_slash_are_whole():
    def vectors(*words):
        model = LSTMTagger(len(words), words, d_embedding=3, d_model=4, directions=0, dropout=0.0)
        return model(torch.arange(len(words))[None], torch.tensor([len(words)]))[0]

    tagged = vectors("<unk>", "and/CC", "and/NN", "and/or/CC")
    assert torch.equal(tagged[1], tagged[2]) and not torch.equal(tagged[1], tagged[3])
    plain = vectors("<unk>", "and", "and/or")
    assert not torch.equal(plain[1], plain[2])


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("D56y-3", ["initial capital", "letters and digits", "punctuation", "letters Dy", "non-letters 56-3",
                    "pattern A00a-0", "summary A0a-0"]),
        ("I.B.M.", ["initial capital", "all capitals", "inner capital", "punctuation", "letters IBM", "non-letters ...",
                    "pattern A.A.A.", "summary A.A.A."]),
        ("A.T.&T", ["initial capital", "all capitals", "inner capital", "punctuation", "letters ATT", "non-letters ..&",
                    "pattern A.A.&A", "summary A.A.&A"]),
        ("dog", ["all lower case", "letters dog", "pattern aaa", "summary a"]),
        ("'s", ["all lower case", "punctuation", "apostrophe s", "letters s", "non-letters '", "pattern 'a",
                "summary 'a"]),
        ("1990", ["non-letters 1990", "pattern 0000", "summary 0"]),
    ],
)  # fmt: skip
def test_spelling_features_of_a_word(word, expected):
    """The first three are the examples of the paper."""
    affixes = [f"{kind} {part}" for n in (2, 3, 4, 5) if n <= len(word)
               for kind, part in (("prefix", word[:n]), ("suffix", word[len(word) - n:]))]  # fmt: skip
    found = list(spelling_features(word))
    assert [each for each in found if each.split()[0] not in ("prefix", "suffix")] == expected
    assert [each for each in found if each.split()[0] in ("prefix", "suffix")] == affixes


def test_the_features_of_a_sentence():
    """Word by word from the lists of section 4.2: words and parts of speech around a word, then its spelling."""
    features = list(token_features(["The/DT", "U.S./NNP", "won/VBD"]))
    words, parts = ["<2<", "<1<", "The", "U.S.", "won", ">1>", ">2>"], ["<2<", "<1<", "DT", "NNP", "VBD", ">1>", ">2>"]
    runs = [*((words, i, i + 1) for i in range(-2, 3)), (words, -1, 1), (words, 0, 2)]
    runs += [*((parts, i, i + 1) for i in range(-2, 3)), *((parts, i, i + 2) for i in range(-2, 2))]
    runs += [(parts, i, i + 3) for i in range(-2, 1)]
    for t, (row, word) in enumerate(zip(features, ["The", "U.S.", "won"], strict=True), 2):
        context = [" ".join(column[t + first : t + end]) for column, first, end in runs]
        assert row == [*(f"{line} {value}" for line, value in enumerate(context)), *spelling_features(word)]


def test_features_of_the_same_name_are_the_same_fact():
    """A brute-force count of some features over all sentences."""
    counts = Counter(name for words in SENTENCES for row in token_features(words) for name in row)
    tokens = [each for words in SENTENCES for each in words]
    assert counts["2 won"] == sum(each.startswith("won/") for each in tokens) == 3
    assert counts["9 VBD"] == sum(each.endswith("/VBD") for each in tokens) == 2 and counts["8 VBD"] == 1
    assert counts["suffix on"] == counts["prefix wo"] == counts["pattern aaa"] - 1 == 3
    assert counts["initial capital"] == 4 and counts["all capitals"] == counts["letters US"] == 2


def test_words_that_differ_in_case_or_part_of_speech_share_a_vector():
    vectors = tagger(0)(torch.arange(8)[None], torch.tensor([8]))[0]
    table = tagger(0).input_embedding.weight
    rows = [0, 1, 2, 2, 4, 4, 0, 0]  # the last two have no vectors
    assert torch.equal(vectors, table[rows]) and tagger(0).d_model == 3


def test_one_lstm_never_looks_ahead_and_two_look_both_ways():
    for directions in (0, 1, 2):
        model = tagger(directions)
        states = model(IDS, LENGTHS)
        for t in range(5):
            changed = IDS.clone()
            changed[0, t] = 5 if IDS[0, t] != 5 else 2
            moved = (model(changed, LENGTHS) - states)[0].abs().amax(dim=1) > 0
            seen = {0: [t], 1: range(t, 5), 2: range(5)}[directions]
            same_word = IDS[0, t] in (4, 5)  # one vector for both parts of speech
            assert moved.nonzero().flatten().tolist() == ([] if same_word else [*seen])


def test_both_directions_are_the_lstms_from_either_end():
    model = tagger(2)
    words, mirror = model.input(IDS), mirrored(LENGTHS, 5)
    forth, back = (lstm(read) for lstm, read in zip(model.lstms, (words, taken(words, mirror)), strict=True))
    for row, length in enumerate(LENGTHS.tolist()):
        expected = torch.cat([forth[row, :length], back[row, :length].flip(0)], dim=1)
        torch.testing.assert_close(model(IDS, LENGTHS)[row, :length], expected)


@pytest.mark.real
def test_the_recipe_states_the_numbers_of_features(data_dir, monkeypatch):
    monkeypatch.setenv("RETABLE_DATA", str(data_dir))
    recipe = (CONF / "recipe/taggers/huang_bilstm_crf.yaml").read_text()
    for held_out, size in ((1000, 73_714), (0, 80_037)):
        cfg = composed("finetune", "huang_bilstm_crf", "task=conll2000_pos", f"task.sentences.held_out={held_out}")
        task = instantiate(cfg.task)
        assert len(task.features) == size and f"{size:,} features" in recipe
    rows = [row for each in task.examples("train") for row in context_features(each.words)]
    counts = Counter(name for row in rows for name in row)
    assert sum(count >= 3 for count in counts.values()) == 76_328 and "76,328 context features" in recipe
