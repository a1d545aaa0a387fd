"""Test hostile texts that users give to trained systems, for example with `retable score` or `retable predict`.

Each gives an answer that can be printed, or a one-line error. FUZZ_COUNT texts are drawn with FUZZ_SEED:

    FUZZ_COUNT=20000 FUZZ_SEED=1 python -m pytest tests/fuzz/test_texts.py
"""

import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

import retable
from pipelines.cli.import_ import _arpa
from retable.core import settings
from retable.core.artifacts import write_json
from retable.data.spelling import Vocabulary
from retable.inference.build import build_model, build_objective
from retable.inference.texts import write_text
from retable.models.arpa import write_arpa
from retable.models.vector_files import write_word2vec
from retable.tasks.base import Task
from retable.tokenizers import byte_bpe
from retable.training.weights import save_weights
from tests.fuzz import kinds
from tests.fuzz.bounds import blocks, check, refusal
from tests.fuzz.damage import FRAGMENTS
from tests.fuzz.kinds import LINES, part

COUNT, SEED = int(os.environ.get("FUZZ_COUNT", 150)), int(os.environ.get("FUZZ_SEED", 1))
LENGTH = 2_000  # most bytes of a piece: many models need time in the square of a text's length
GPT = part("retable.models.gpt.GPT", d_model=8, n_layers=1, n_heads=2, max_length=16, dropout=0.0)
SENTENCES = {
    "name": "own", "files": {"train": "a.tsv", "validation": "b.tsv"}, "label": "label", "labels": ["bad", "good"],
    "metrics": ["accuracy"],
}  # fmt: skip
FILES = {"train": "a", "validation": "b", "test": "c"}
TAGGED = part("retable.tasks.tagged.TaggingTask", sentences=part("retable.tasks.tagged.TaggedFiles", **FILES))
HELD_OUT = {"train": "a", "test": "b", "held_out": 1}
FILES_OF_QUESTIONS = part("retable.tasks.questions.QuestionFiles", **HELD_OUT)
ASKED = part("retable.tasks.questions.QuestionTask", questions=FILES_OF_QUESTIONS)
CHOICES = part("retable.corpora.choice_files.ChoiceFiles", **HELD_OUT, context="c", endings="d", label="e")
DOCUMENTS = part("retable.corpora.coreference.DocumentFiles", **FILES)
TRANSLATION = part(
    "retable.tasks.translation.TranslationTask", folder=".", strategy="greedy", max_tokens=4096, alignments=0,
    decoding=part("retable.generation.sampling.Greedy", max_new_tokens=4),
)  # fmt: skip


def of_sentences(*columns: str) -> dict[str, Any]:
    return part("retable.tasks.sentences.SentenceTask", **SENTENCES, sentences=[*columns])


TASKS: Mapping[str, tuple[Any, Any, Any]] = {
    "classifier": (of_sentences("a"), kinds.ENCODER, kinds.OF_CLASSES),
    "pairs": (of_sentences("a", "b"), kinds.ENCODER, kinds.OF_CLASSES),
    "tagger": (TAGGED, kinds.TAGGER, kinds.OF_TAGS),
    "tagger by tokens": (TAGGED, kinds.ENCODER, kinds.OF_TAGS),
    "reader": (ASKED, kinds.READER, {"dropout": 0.1}),
    "reader by tokens": (ASKED, kinds.ENCODER, {"dropout": 0.1}),
    "chooser": (part("retable.tasks.choices.ChoiceTask", choices=CHOICES), kinds.ENCODER, kinds.OF_CHOICES),
    "resolver": (part("retable.tasks.clusters.CoreferenceTask", documents=DOCUMENTS), kinds.RANKER, {}),
    "translator": (TRANSLATION, kinds.TRANSLATOR, {"label_smoothing": 0.1, "tie": True, "bias": False}),
}


def written(folder: Path, task: Any, model: Any, head: Any) -> Any:
    """Write the cell of a task as stage train does, with initial weights."""
    folder.mkdir()
    spelt = model in (kinds.TAGGER, kinds.READER, kinds.RANKER)
    text = Vocabulary.of_texts([line.split() for line in LINES] * 2, []) if spelt else kinds.words()
    made: Task[Any, Any] = settings.build(task, "task", Task)
    if "tags" in vars(type(made)):
        write_json(folder / "learnt.json", learnt := {"tags": ["A", "B"], "commonest": "A"})
        made.recall(learnt)
    torch.manual_seed(1)
    objective = made.objective(build_model({"model": model}, text), text, **head)
    save_weights(objective, folder / "model.safetensors")
    write_text(text, folder)
    OmegaConf.save(OmegaConf.create({"task": task, "model": model, "head": head}), folder / "config.yaml")
    return retable.load(folder)


def counted(folder: Path) -> Any:
    folder.mkdir()
    write_arpa(kinds.counted(), kinds.words().words, path := folder.with_suffix(".arpa"))
    config = _arpa(path, "own", folder) | {"corpus": {"unit": "line"}}
    OmegaConf.save(OmegaConf.create(config), folder / "config.yaml")
    return retable.load(folder)


def trained(folder: Path) -> Any:
    folder.mkdir()
    text = byte_bpe.train(LINES, 270)
    objective = part("retable.objectives.causal_lm.CausalLM", tie=True, bias=False, reduction="mean")
    scorer = part("retable.evaluation.likelihood.SlidingWindow", length=16, stride=8, batch_size=4)
    config = {"model": GPT, "objective": objective, "scorer": scorer, "tokens": "own/bpe", "corpus": {"unit": "line"}}
    text.save(folder / "tokenizer.json")
    torch.manual_seed(1)
    save_weights(build_objective(config, text, build_model(config, text)), folder / "model.safetensors")
    OmegaConf.save(OmegaConf.create(config), folder / "config.yaml")
    return retable.load(folder)


@pytest.fixture(scope="module")
def systems(tmp_path_factory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("systems")
    made = {name: written(folder / name, *parts) for name, parts in TASKS.items()}
    write_word2vec(folder / "vectors.txt", kinds.WORDS, kinds.vectors().vectors)
    made |= {"counted": counted(folder / "counted"), "trained": trained(folder / "trained")}
    return made | {"vectors": retable.load(folder / "vectors.txt")}


def asked(name: str, system: Any, texts: list[str]) -> Any:
    """Return what the command would print, after a check."""
    first, last = texts[0], texts[-1]
    match name:
        case "counted" | "trained":
            scored = system.score(texts, end=len(texts) > 1)
            assert all(np.isfinite(each.log_prob) and each.log_prob <= 0 for each in scored)
            assert all(
                [word for word, _ in each.words] == text.split() for each, text in zip(scored, texts, strict=True)
            )
            assert system.perplexity(texts) >= 1
            return system.continue_(first, max_new_tokens=3), system.alternatives(last, max_new_tokens=3, n=2)
        case "classifier":
            assert np.isfinite(system.probabilities(texts)).all()
            return system.classify(texts)
        case "pairs":
            return system.classify([(first, last)])
        case "tagger" | "tagger by tokens":
            tagged = system.tag(texts)
            assert [[word for word, _ in row] for row in tagged] == [
                text.removeprefix("\ufeff").split() for text in texts
            ]
            return tagged
        case "reader" | "reader by tokens":
            answer = system.answer(first, last)
            assert answer in last
            return answer
        case "chooser":
            assert system.choose(first, [*texts, "a bird"]) <= len(texts)
        case "resolver":
            return system.resolve(texts)
        case "translator":
            return system.translate(texts)
        case "vectors":
            return system.neighbours(first), system.similarity(first, last), system.analogy(first, "cat", last)


def drawn(dice: random.Random) -> str:
    """Return a text as it arrives from a command line: bytes that are not UTF-8 are lone surrogates."""
    pieces = [
        dice.choice([line.encode() for line in LINES] + FRAGMENTS)[:LENGTH] for _ in range(dice.choice([1, 1, 2, 3]))
    ]
    return dice.choice([b" ", b"", b"\n"]).join(pieces).decode("utf-8", "surrogateescape")


def outcome(name: str, system: Any, texts: list[str], capsys) -> str:
    """Give the text to the system. Return nothing if there is an answer, otherwise the one-line error."""
    return refusal(lambda: repr(asked(name, system, texts)).encode(), capsys)


@pytest.mark.parametrize("numbers", blocks(COUNT))
def test_drawn_texts_are_answered_or_refused_in_one_line(numbers, systems, capsys):
    def case(number: int):
        dice = random.Random(f"{SEED} {number}")
        name = [*systems][number % len(systems)]
        texts = [drawn(dice) for _ in range(dice.choice([1, 1, 2, 3]))]
        return f"{name} {texts!r}", lambda: outcome(name, systems[name], texts, capsys)

    check(numbers, case)


def test_plain_texts_are_answered(systems, capsys):
    for name, system in systems.items():
        assert not outcome(name, system, ["cat", "bird"], capsys), name
