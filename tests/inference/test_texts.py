"""Test texts given in Python: long ones are cut and counted; errors name unknown words and settings."""

import json
import warnings
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from retable.core.digests import write_digests
from retable.core.errors import UsageError, UsageWarning
from retable.evaluation.held_out import PretrainedObjective
from retable.evaluation.likelihood import Carried, NeuralLM
from retable.inference.language import Language
from retable.inference.load import load
from retable.inference.served import answers
from retable.inference.texts import read_text, tokenizer_files
from retable.inference.writing import Writer
from retable.models.bert import BERT
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.models.t5 import T5
from retable.objectives.causal_lm import CausalLM
from retable.objectives.classification import Classification
from retable.objectives.masked_lm import MaskedLM
from retable.objectives.text_to_text import TextToText
from retable.tokenizers import character, word
from retable.tokenizers.report import NAMED
from retable.training.weights import save_weights

LINES = ["the cat sees a bird", "a bird sees the cat"]
TOKENIZER = word.train(LINES, marks=["[PAD]", "[CLS]", "[SEP]", "[MASK]", "</s>"])
V, T = TOKENIZER.vocab_size, 8
LONG = " ".join(LINES * 3)


def causal(model) -> NeuralLM:
    return NeuralLM(CausalLM(model, V, tie=False, bias=False, reduction="mean"), Carried(1), TOKENIZER.boundary)


def masked(**settings) -> PretrainedObjective:
    return PretrainedObjective(MaskedLM(BERT(V, 8, 1, 2, T, 0.0, **settings), V, False), lambda split: None)


SYSTEMS = {
    "gpt": lambda: causal(GPT(V, 8, 1, 2, T, 0.0)),
    "gpt, rotary": lambda: causal(GPT(V, 8, 1, 2, T, 0.0, positions="rotary")),
    "lstm": lambda: causal(LSTM(V, 8, 1, 0.0, 0.1)),
    "bert": masked,
    "bert, rotary": lambda: masked(positions="rotary", norm="pre"),
    "t5": lambda: PretrainedObjective(TextToText(T5(V, 8, 1, 2, 16, 0.0, d_head=4), V, True), lambda split: None),
}
MARKS = {"gpt": 1, "gpt, rotary": 1, "lstm": 1, "t5": 1, "bert": 2, "bert, rotary": 2}


def language(name: str, folder) -> Language:
    torch.manual_seed(0)
    TOKENIZER.save(folder / "tokenizer.json")
    (folder / "config.yaml").write_text(json.dumps({"corpus": {"unit": "line"}}))
    return Language(folder, SYSTEMS[name]())


@pytest.fixture
def classifier(tmp_path):
    """Return an untrained BERT that labels sentences, loaded from its cell."""
    target = "retable.tasks.sentences.SentenceTask"
    task = {"_target_": target, "name": "t", "sentences": ["s"], "label": "l", "labels": ["x", "y"]}
    task |= {"files": {"train": "train.tsv", "validation": "train.tsv"}, "metrics": ["accuracy"]}
    settings = {"d_model": 8, "n_layers": 1, "n_heads": 2, "max_length": T, "dropout": 0.0}
    head = {"dropout": 0.0, "auxiliary": 0.0, "d_hidden": None, "pooling": None, "tie": True}
    config = {"task": task, "model": {"_target_": "retable.models.bert.BERT"} | settings, "head": head}
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    TOKENIZER.save(tmp_path / "tokenizer.json")
    save_weights(Classification(BERT(V, **settings), 2, 0.0), tmp_path / "model.safetensors")
    return load(tmp_path)


@pytest.mark.parametrize("pooling", [None, "mean", "max", "first", "last"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_long_text_is_cut_and_counted_and_others_are_as_they_were(name, pooling, tmp_path):
    system, texts = language(name, tmp_path), ["a cat", LONG, LINES[0], LONG + " a"]
    n_marks, reads = MARKS[name], {"lstm": None, "t5": None}.get(name, T)
    for limit in (None, 6):
        if longest := limit or reads:
            n_cut = sum(len(text.split()) + n_marks > longest for text in texts)
            with pytest.warns(UsageWarning, match=rf"^{n_cut} of 4 texts have more tokens") as warned:
                vectors = system.encode(texts, pooling, max_length=limit)
            (one,) = warned
            assert str(one.message).endswith(f"more tokens than max_length={longest}, and were cut at the end")
            assert one.filename == __file__
            cut = [" ".join(text.split()[: longest - n_marks]) for text in texts]
        else:
            vectors, cut = system.encode(texts, pooling), texts
        with warnings.catch_warnings(action="error"):
            expected = system.encode(cut, pooling)
        for ours, theirs in zip(vectors, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)
        if pooling is None and longest:
            assert [row.shape[1] for row in vectors] == [min(len(text.split()) + n_marks, longest) for text in texts]


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_length_that_no_text_can_have_is_refused(name, tmp_path):
    system, least = language(name, tmp_path), MARKS[name] + 1
    bounded = name not in ("lstm", "t5")
    most = f"to {T}, the model's limit" if bounded else "or more"
    with pytest.raises(UsageError, match=rf"^max_length={least - 1} is out of range; write {least} {most}$"):
        system.encode("a cat", max_length=least - 1)
    if bounded:
        with pytest.raises(UsageError, match=rf"^max_length={T + 1} is out of range"):
            system.encode("a cat", max_length=T + 1)
    for wrong in (0, 2.5, "6"):
        with pytest.raises(UsageError, match=r"^max_length="):
            system.encode("a cat", max_length=wrong)


def test_a_served_encoder_and_a_task_cut_and_count_too(classifier, tmp_path):
    for ask in (classifier.classify, classifier.probabilities):
        with pytest.warns(UsageWarning, match="^1 of 2 texts have more tokens than the model's max_length=8, and were"):
            ask(["a cat", LONG])
        with pytest.warns(UsageWarning) as warned:
            ask("the zebra")
        assert [(str(each.message), each.filename) for each in warned] == [(UNKNOWN, __file__)]
    (tmp_path / "bert").mkdir()
    bert = language("bert", tmp_path / "bert")
    with pytest.warns(UsageWarning, match="^1 of 2 texts have more tokens than max_length=8"):
        answered = answers(bert, pd.DataFrame({"text": ["a cat", LONG]}))
    assert len(answered) == 2 and len(answered["vector"][1]) == 8


UNKNOWN = "unknown to the tokenizer, read as <unk>: zebra"
ASKED = {
    "perplexity": lambda system: system.perplexity(["the zebra"]),
    "likelihood": lambda system: system.likelihood("the zebra"),
    "score": lambda system: system.score(["a cat", "the zebra"]),
    "score, context": lambda system: system.score("a cat", context="the zebra "),
    "choose": lambda system: system.choose("the cat", [" sees", " zebra"]),
    "choose, context": lambda system: system.choose("the zebra", [" sees", " cat"]),
    "continue_": lambda system: system.continue_("the zebra", max_new_tokens=2),
    "alternatives": lambda system: system.alternatives("the zebra", max_new_tokens=2, n=2),
    "stream": lambda system: [*islice(system.stream("the zebra", max_new_tokens=2), 2)],
    "encode": lambda system: system.encode("the zebra"),
}


def test_every_method_of_a_language_model_is_asked(tmp_path):
    take_texts = {*language("gpt", tmp_path).can, "likelihood"} - {"generate"}
    assert {name.partition(",")[0] for name in ASKED} == take_texts


@pytest.mark.parametrize("name", ASKED)
def test_unknown_words_are_named_once_for_each_method(name, tmp_path):
    system = language("gpt", tmp_path)
    with pytest.warns(UsageWarning) as warned:
        ASKED[name](system)
    assert [str(each.message) for each in warned] == [UNKNOWN]
    assert warned[0].filename == __file__


def test_known_words_and_marks_are_not_named_and_many_words_are_counted(tmp_path, recwarn):
    system = language("lstm", tmp_path)
    system.score(["the cat", "<unk> a bird"])
    assert not [each for each in recwarn if each.category is UsageWarning]
    with pytest.warns(UsageWarning, match=rf"^{UNKNOWN[:-5]}w0, w1, .*w{NAMED - 1}, and 1,004 more$"):
        system.score(" ".join(f"w{i}" for i in range(1004 + NAMED)))


def test_the_command_prints_the_same_words_in_one_line(classifier, command):
    code, _, printed = command("predict", classifier.folder, "--text", "the zebra", "--text", LONG)
    cut = "1 of 2 texts have more tokens than the model's max_length=8, and were cut at the end"
    assert code == 0 and printed.splitlines() == [UNKNOWN, cut]


def same_in(system: Language, text: str) -> dict[str, object]:
    """Return the results of each method that reads a text, with this text before and after another one."""
    one = {"max_new_tokens": 3}
    return {
        "score": [system.score(text), system.score("the", context=text), system.score(text, context="the ")],
        "likelihood": [system.likelihood(text), system.perplexity(text)],
        "choose": system.choose("the", [text, TEXT]),  # the first of equal ones
        "choose, context": system.choose(text, ["s", "e", "a"]),
        "continue_": [system.continue_(text, **one), system.continue_(text, **one, special_tokens=True)],
        "alternatives": system.alternatives(text, **one, n=2),
        "stream": [*system.stream(text, **one)],
        "encode": [system.encode(text), system.encode([text, TEXT], "mean")],
    }


TEXT = "the cat sees\na bird"
FORMS = [lambda text: "\ufeff" + text, lambda text: text.replace("\n", "\r\n"), lambda text: text.replace("\n", "\r")]


@pytest.mark.parametrize("form", FORMS, ids=["mark", "CRLF", "CR"])
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_text_is_read_as_its_file_by_every_method(form, end, classifier, tmp_path):
    """With characters, of which a byte-order mark and a CR are some; the last line end counts in every form."""
    characters = character.train(LINES)
    (folder := tmp_path / "characters").mkdir()
    characters.save(folder / "tokenizer.json")
    (folder / "config.yaml").write_text(json.dumps({"corpus": {"unit": "document"}}))
    torch.manual_seed(0)
    model = GPT(characters.vocab_size, 8, 1, 2, 64, 0.0)
    objective = CausalLM(model, characters.vocab_size, tie=False, bias=False, reduction="mean")
    system = Language(folder, NeuralLM(objective, Carried(1), characters.boundary))
    with warnings.catch_warnings(action="ignore"):
        for name, expected in (before := same_in(system, TEXT + end)).items():
            result = same_in(system, form(TEXT + end))[name]
            assert repr(result) == repr(expected), name
        assert {name.partition(",")[0] for name in before} | {"perplexity", "generate"} == {*system.can, "likelihood"}
        assert np.array_equal(classifier.probabilities(form(TEXT)), classifier.probabilities(TEXT))


WRITING = {
    "continue_": lambda system, **settings: system.continue_("the cat", **settings),
    "alternatives": lambda system, **settings: system.alternatives("the cat", **{"strategy": "greedy"} | settings),
    "stream": lambda system, **settings: system.stream("the cat", **settings),
    "generate": lambda system, **settings: system.generate(**settings),
}


@pytest.mark.parametrize(("settings", "message"), [
    ({"do_sample": True}, 'strategy="greedy" has no setting do_sample; write strategy="sample" or one of max_new_'),
    ({"top_p": 0.5}, 'strategy="greedy" has no setting top_p; write strategy="sample" or one of max_new_tokens, '),
    ({"num_beams": 2}, 'strategy="greedy" has no setting num_beams; write strategy="beam" or one of '),
    ({"min_tokens": 2}, 'strategy="greedy" has no setting min_tokens; write min_new_tokens or one of '),
    ({"zzz": 2}, 'strategy="greedy" has no setting zzz; write one of max_new_tokens, min_new_tokens, min_length, '),
    ({"strategy": "sample", "topk": 2}, 'strategy="sample" has no setting topk; write top_k or one of max_new_'),
    ({"strategy": "sample", "top_k": 2.5}, "top_k=2.5 should be a whole number"),
    ({"strategy": "sample", "top_p": "x"}, "top_p=x should be a number"),
    ({"strategy": "sample", "top_p": 2.0}, "top_p=2.0 is out of range; write"),
    ({"strategy": "sample", "seed": "x"}, "seed=x should be"),
    ({"max_new_tokens": "x"}, "max_new_tokens=x should be"),
])  # fmt: skip
@pytest.mark.parametrize("name", ["continue_", "stream"])
def test_a_setting_that_does_not_exist_is_named_with_those_that_do(name, settings, message, tmp_path):
    with pytest.raises(UsageError) as refused:
        WRITING[name](language("gpt", tmp_path), **settings)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(("ask", "message"), [
    (lambda its: its.score("a", context="b", end=True), "end=True needs texts without context; leave context= out, or"),
    (lambda its: its.score(["a", " "], end=True), "one of the texts is empty, and end=True needs a line of words; "),
    (lambda its: its.stream("a", strategy="beam"), "strategy=beam cannot stream; write greedy, sample or contrastive"),
    (lambda its: answers(SimpleNamespace(folder="images"), pd.DataFrame()), "images has no result for a text; use a "),
])  # fmt: skip
def test_what_is_asked_in_vain_is_told(ask, message, tmp_path):
    system = language("gpt", tmp_path)
    assert system.score(" ")[0].words == []
    with pytest.raises(UsageError) as refused:
        ask(system)
    assert str(refused.value).startswith(message)


def test_a_t5_reads_a_text_up_to_the_mark_that_ends_what_it_writes():
    writer, mark = Writer(SYSTEMS["t5"](), TOKENIZER), TOKENIZER.special_ids["</s>"]
    assert writer.encode(["a cat"]) == [[*TOKENIZER.encode("a cat"), mark]] and writer.end == mark
    assert writer.read([], [*TOKENIZER.encode("a bird"), mark]) == "a bird"
    assert Writer(SYSTEMS["t5"](), TOKENIZER, stop=False).end is None and not writer.continues_prompt


@pytest.mark.parametrize("name", WRITING)
def test_no_writing_method_raises_an_error_of_python(name, tmp_path):
    for setting in ("do_sample", "zzz", "length_penaltyy"):
        with pytest.raises(UsageError, match=f"has no setting {setting}; write .*max_new_tokens"):
            WRITING[name](language("gpt", tmp_path), **{setting: 1})


def test_the_vocabulary_of_sources_is_checked_as_part_of_the_cell(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"stage": "tokenize", "format": 2}))
    path, of_sources = tmp_path / "tokenizer.json", tmp_path / "tokenizer.source.json"
    TOKENIZER.with_source(word.train(["a zebra"])).save(path)
    write_digests(tmp_path)
    assert tokenizer_files(path) == [path, of_sources] and read_text(tmp_path).source_vocab_size is not None
    content = of_sources.read_text()
    of_sources.write_text(content.replace("zebra", "lions"))
    for read in (read_text, lambda cell: tokenizer_files(cell / "tokenizer.json")):
        with pytest.raises(UsageError, match=r"tokenizer\.source\.json is damaged"):
            read(tmp_path)
