"""Test T5 fine-tuned to write labels: prompts and answers as printed in the paper, and a run of the stage."""

from functools import cache
from typing import Any

import pandas as pd
import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from pipelines.config.project import CONF
from retable.core.errors import UsageError
from retable.data.templates import prompt
from retable.inference.build import build_model
from retable.models.bilstm import BiLSTM
from retable.objectives.labels_as_text import LabelsAsText
from retable.objectives.text_to_text import TextToText
from retable.tasks.reading import pack
from retable.tasks.sentences import Example, SentenceTask
from retable.tasks.written import Answers
from retable.tokenizers import byte_bpe, unigram, word, wordpiece
from retable.tokenizers.tokenizer import Tokenizer
from retable.training.weights import save_weights
from tests.pipelines.recipes import composed

# Raffel et al. 2020, appendix D: the parts of a prompt after the task's name, the label in the data set, and the
# answer. WNLI differs from the paper, in which the answer is the noun to which a pronoun refers.
GOLDEN = {
    "cola": (["sentence: John made Bill master of himself."], "1", "acceptable"),
    "rte": (
        ["sentence1: A smaller proportion of Yugoslavia's Italians were settled in Slovenia (at the 1991 national "
         "census, some 3000 inhabitants of Slovenia declared themselves as ethnic Italians).",
         "sentence2: Slovenia has 5,460 inhabitants."],
        "not_entailment", "not_entailment",
    ),
    "mnli": (
        ["hypothesis: The St. Louis Cardinals have always won.",
         "premise: yeah well losing is i mean i'm i'm originally from Saint Louis and Saint Louis Cardinals when they "
         "were there were uh a mostly a losing team but"],
        "contradiction", "contradiction",
    ),
    "mrpc": (
        ["sentence1: We acted because we saw the existing evidence in a new light , through the prism of our "
         'experience on 11 September , " Rumsfeld said .',
         'sentence2: Rather , the US acted because the administration saw " existing evidence in a new light , '
         'through the prism of our experience on September 11 " .'],
        "1", "equivalent",
    ),
    "qnli": (
        ["question: Where did Jebe die?",
         "sentence: Genghis Khan recalled Subutai back to Mongolia soon afterwards, and Jebe died on the road back to "
         "Samarkand."],
        "entailment", "entailment",
    ),
    "qqp": (
        ["question1: What attributes would have made you highly desirable in ancient Rome?",
         "question2: How I GET OPPERTINUTY TO JOIN IT COMPANY AS A FRESHER?"],
        "0", "not_duplicate",
    ),
    "sst2": (
        ["sentence: it confirms fincher 's status as a film maker who artfully bends technical know-how to the service "
         "of psychological insight ."],
        "1", "positive",
    ),
    "stsb": (
        ["sentence1: Representatives for Puretunes could not immediately be reached for comment Wednesday.",
         "sentence2: Puretunes representatives could not be located Thursday to comment on the suit."],
        "3.25", "3.2",
    ),
    "wnli": (["sentence1: The stable was roomy. It was old.", "sentence2: The stable was old."], "1", "entailment"),
    "sentiment": (["sentence: anna is rude ."], "negative", "negative"),
    "acceptability": (["sentence: anna is ."], "unacceptable", "unacceptable"),
}  # fmt: skip
SMALL = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 24}
LINES = ["the cat sees a bird", "a bird sees the cat :", "it is good , it is bad"]
WORDS = word.train(LINES)


@cache
def recipe(model: str) -> DictConfig:
    cfg = composed("finetune", model)
    cfg.model.update({name: size for name, size in SMALL.items() if name in cfg.model})
    return cfg


@cache
def configured(name: str) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(f"task/{name}", overrides=["+text=g", f"+task_name={name}"]).task


def task(name: str) -> SentenceTask:
    return instantiate(configured(name))


def writer(tokenizer: Tokenizer, name: str, answers: list[str] | None, **settings: Any) -> LabelsAsText:
    cfg = OmegaConf.merge(recipe("t5_text"), {"head": settings})
    given = instantiate(configured(name), answers=answers)
    return given.objective(build_model(cfg, tokenizer), tokenizer, **cfg.head)


@pytest.mark.parametrize("name", GOLDEN)
def test_prompts_and_answers_are_the_papers(name):
    parts, label, answer = GOLDEN[name]
    sentences = [part.partition(": ")[2] for part in parts]
    if name == "mnli":  # its columns have the other order
        sentences.reverse()
    answers, place = Answers(task(name).labels), task(name).labels.read(label)
    assert prompt(name, task(name).named(Example(tuple(sentences), place))) == f"{name} {' '.join(parts)}"
    assert answers.texts[answers.place(place)] == answer


def test_every_task_of_glue_has_its_prompt():
    glue = {path.stem for path in (CONF / "task").glob("*.yaml") if "/glue/" in path.read_text()}
    assert glue <= set(GOLDEN) and len(glue) == 9


def test_it_reads_a_prompt_and_an_end():
    model = build_model(recipe("t5_text"), WORDS)
    inputs = pack(model, WORDS, [("the cat sees",), ("bird",)], symmetric=True)
    assert [" ".join(WORDS.words[i] for i in ids) for ids in inputs.sequences] == ["the cat sees <eos>", "bird <eos>"]
    assert inputs.others is None and inputs.segments is None and inputs.truncated == 0
    pieces = unigram.train([*LINES, "positive negative"], 170)
    inputs = pack(model, pieces, [("a bird",)], symmetric=False)
    assert inputs.sequences[0][-1] == pieces.special_ids["</s>"] and pieces.decode(inputs.sequences[0][:-1]) == "a bird"


LABELS = [*LINES, "not_entailment 0.1 2.3 4.5 6.7 8.9 0 1 2 3 4 5 6 7 8 9 . _"]


@pytest.mark.parametrize("tokenizer", [
    unigram.train(LABELS, 170),
    byte_bpe.train(LABELS, 300),
    wordpiece.train(LABELS, vocab_size=90, lowercase=True, alphabet=60),
    word.train([*LABELS, *(f"{i / 5:.1f} " for i in range(26)), "entailment"], english=True),
    word.train([*LABELS, *(f"{i / 5:.1f} " for i in range(26)), "entailment"]),
], ids=["unigram", "bpe", "wordpiece", "english words", "words"])  # fmt: skip
@pytest.mark.parametrize("name", ["rte", "stsb"])
def test_labels_come_back_from_what_is_written(tokenizer, name):
    trained = writer(tokenizer, name, None)
    texts = trained.answers.tolist()
    expected = [0, 1] if name == "rte" else [i / 5 for i in range(26)]
    assert [trained.read(text) for text in texts] == expected
    none = 2 if name == "rte" else -1
    end = texts[0][trained.sizes[0] - 1]
    assert trained.read([end]) == none and trained.read([texts[0][0]] * 9) == none


@pytest.mark.parametrize(("name", "answers", "settings", "message"), [
    ("sentiment", None, {},
     r"the tokenizer turns the label 'negative' into '<unk>'; .*answers="),
    ("sentiment", ["good", "poor"], {}, "turns the label 'poor' into"),
    ("stsb", None, {}, "turns the label '0.0' into .* tokenizer=unigram"),
    ("sentiment", ["bad", "good"], {"pooling": "mean"},
     "T5 writes labels as text, without a head; remove pooling=mean"),
    ("sentiment", ["bad", "good"], {"d_hidden": 7}, "remove d_hidden=7"),
    ("sentiment", ["bad", "good"], {"auxiliary": 0.5}, "remove auxiliary=0.5"),
], ids=str)  # fmt: skip
def test_what_can_not_be_is_refused(name, answers, settings, message):
    with pytest.raises(UsageError, match=message):
        writer(WORDS, name, answers, **settings)


def test_a_head_takes_no_answers():
    given = instantiate(configured("sentiment"), answers=["bad", "good"])
    with pytest.raises(UsageError, match=r"BiLSTM cannot write labels; remove answers=, or write recipe=t5/t5_text"):
        given.require(BiLSTM, 0)


def test_the_recipe_is_that_of_the_pretraining():
    pretrained, finetuned = composed("pretrain", "t5"), composed("pretrain", "t5_text")
    assert finetuned.model == pretrained.model and finetuned.objective.tie == pretrained.objective.tie


def test_the_stage_takes_the_weights_and_writes_predictions(project):
    folder, made = project.folder / "outputs", "finetune/grammar_tiny/sentiment-t5-1"
    tokenizer = Tokenizer.load(folder / "tokenize/grammar_tiny/word/tokenizer.json")
    torch.manual_seed(7)
    pretrained = TextToText(build_model(recipe("t5_text"), tokenizer), tokenizer.vocab_size, tie=False)
    (cell := folder / "pretrain/made/t5-1").mkdir(parents=True)
    save_weights(pretrained, cell / "model.safetensors")
    (cell / "run.json").write_text("{}")
    project.succeed(
        "finetune", "corpus=grammar_tiny", "tokenizer=word", "recipe=t5/t5_text", "objective.tie=false", "system=t5",
        f"answers=[{','.join(tokenizer.words[2:4])}]", *(f"model.{name}={value}" for name, value in SMALL.items()),
        "init=pretrain/made/t5-1", "finetuning.lr=0", "+finetuning.max_steps=1",
    )  # fmt: skip
    assert (folder / made / "model.safetensors").read_bytes() == (cell / "model.safetensors").read_bytes()
    assert set(pd.read_csv(folder / made / "units.csv")["prediction"]) == {2}  # an untrained model writes no label
    metrics = project.read(f"{made}/metrics.json")
    assert metrics["sentiment/test/accuracy"] == metrics["sentiment/validation/accuracy"] == 0
