"""Test what all training batches have in common: seed and step determine them, and several processes share them."""

import inspect
import pkgutil
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import retable.data
from retable.core.errors import UsageError
from retable.data import choices, coreference, examples, images, questions, tagged
from retable.data.bucketed import Bucketed, Encoded, count_weight, in_order_of_length
from retable.data.cooccurrences import Cells, Cooccurrences
from retable.data.corruption import BERTStyle, Corrupted, Deshuffling, IidDrop, IidSpans, MASSStyle, Prefix, RandomSpans
from retable.data.masking import MaskedBatch, MaskedDocuments
from retable.data.mixture import MixedCorpora, Mixture
from retable.data.pairs import BucketedPairs, PairBatch, PairsBySentences, longest_side, pad
from retable.data.shards import Shards
from retable.data.streams import (
    CarriedStreams,
    JitteredStreams,
    OppositeBatch,
    OppositeStreams,
    SampledWindows,
    ShuffledWindows,
)
from retable.data.streams import TokenBatch as Window
from retable.data.text_to_text import MultitaskMixture, TaskExamples
from retable.data.windows import Windows, WindowSlice
from retable.tokenizers import character
from retable.tokenizers.tokenizer import Tokenizer

N = 23
LENGTHS = [1 + 7 * i % 12 for i in range(N)]
ROWS = [[i + 1] * length for i, length in enumerate(LENGTHS)]
STREAM = np.random.default_rng(0).integers(7, 80, 900).astype("<u2")
STREAM[::8] = 1  # ends a line
UNITS = np.array([[300, 1, 1]] * 3)
MARKS = {"[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "</s>": 0} | {f"<extra_id_{i}>": 99 - i for i in range(20)}
TASK = "sentence\tlabel\n" + "".join(f"{'a' * (1 + i % 5)}\t{'b' if i % 2 else 'a'}\n" for i in range(N))


def of_examples() -> Any:
    return examples.encoded(examples.Inputs(ROWS, others=ROWS[::-1]), [i % 3 for i in range(N)])


def of_choices() -> Any:
    n_endings = np.array([2 + i % 3 for i in range(N)])
    rows = [[i + 1] * (1 + 5 * k % 4) for i, n in enumerate(n_endings) for k in range(n)]
    return choices.encoded(choices.Choices(examples.Inputs(rows), n_endings, [0] * N))


def of_sentences() -> Any:
    sentences = [tagged.TaggedExample([0, *row, 0], range(1, len(row) + 1), [row[0] % 5] * len(row)) for row in ROWS]
    return tagged.encoded(sentences)


def of_words(folder: Any, seed: int) -> Any:
    return Bucketed(of_sentences(), 30, seed, in_tokens=True)


def of_questions() -> Any:
    return questions.encoded([questions.QuestionExample(row, row[:2], 0, len(row) - 1) for row in ROWS])


def of_passages() -> Any:
    rows = [questions.PassageExample([1, *row], 1, [*range(1, 1 + len(row))], [2] * len(row), 0, 0) for row in ROWS]
    return questions.encoded_passages(rows, truncated=0)


def of_documents() -> Any:
    documents = [coreference.CoreferenceExample([[1, *row, 1]] * (1 + len(row) % 3), [], len(row)) for row in ROWS]
    return coreference.encoded(documents)


def of_images() -> Any:
    return images.encoded(np.arange(4 * N, dtype=np.float32).reshape(N, 1, 2, 2), np.arange(N))


BUCKETED: dict[str, Callable[[], Any]] = {
    "examples": of_examples, "choices": of_choices, "sentences": of_sentences, "questions": of_questions,
    "passages": of_passages, "documents": of_documents, "images": of_images,
}  # fmt: skip
FACTS = {"marks": MARKS, "line_end": 1, "vocab_size": 100}


def streams(kind: type, folder: Any, seed: int) -> Any:
    return kind(STREAM, batch_size=4, length=7, seed=seed)


def corrupted(corruption: Any, folder: Any, seed: int) -> Any:
    return Corrupted(STREAM, seed=seed, corruption=corruption, batch_size=4, length=10, **FACTS)


def masked(masking: str, next_sentence: str, folder: Any, seed: int) -> Any:
    settings = {"batch_size": 4, "length": 16, "masking": masking, "next_sentence": next_sentence}
    words = [*["w"] * 60, *["##w"] * 40]
    return MaskedDocuments(STREAM, UNITS, 1, MARKS, words, seed=seed, **settings)


def pairs(limit: int, folder: Any, seed: int) -> Any:
    return BucketedPairs([[*row, 1] for row in ROWS], [[*row, 1] for row in ROWS[::-1]], limit, seed)


def sentence_pairs(folder: Any, seed: int) -> Any:
    sources, targets = [[*row, 1] for row in ROWS], [[*row, 1] for row in ROWS[::-1]]
    weigh = partial(count_weight, np.array([*map(len, targets)]))
    encoded = Encoded(longest_side(sources, targets), partial(pad, sources, targets), weigh)
    return PairsBySentences(encoded, targets, 5, seed)


def windows(folder: Any, seed: int) -> Any:
    counts = np.bincount(STREAM)
    counts[1] = 0
    return Windows(STREAM, counts, 1, subsample=1e-2, batch_tokens=300, seed=seed)


def cells(folder: Any, seed: int) -> Any:
    return Cooccurrences(STREAM, np.bincount(STREAM), 1, window=4, batch_cells=50, seed=seed)


def parts_of_a_mixture(folder: Any, seed: int) -> Any:
    return Mixture([streams(ShuffledWindows, folder, seed), corrupted(Prefix(), folder, seed)], [0.5, 0.5], seed)


def corpora(folder: Any, seed: int) -> Any:
    tokens = np.memmap(folder / "a/word/train.bin", "<u2", "r")
    kind = partial(ShuffledWindows)
    return MixedCorpora(tokens, words=["w"] * 100, seed=seed, kind=kind, corpora={"a/word": 0.5, "b/word": 0.5},
                        batch_size=4, length=7, **FACTS)  # fmt: skip


def tasks(folder: Any, seed: int) -> Any:
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    return TaskExamples(folder / "task/train.tsv", tokenizer, 1, 4, 30, seed, "label")


def multitask(folder: Any, seed: int) -> Any:
    tokens = np.memmap(folder / "train.bin", "<u2", "r")
    return MultitaskMixture(tokens=tokens, seed=seed, unsupervised=partial(Corrupted, corruption=RandomSpans()),
                       tasks=[str(folder / "task")], batch_size=4, length=10, **FACTS)  # fmt: skip


MASKED = [(m, n) for m in ("token", "whole_word", "span") for n in ("none", "next_sentence", "sentence_order")]
NOISE = [Prefix(), BERTStyle(), MASSStyle(), Deshuffling(), IidDrop(), IidSpans(), RandomSpans()]
KINDS: dict[str, Callable[[Any, int], Any]] = {
    **{kind.__name__: partial(streams, kind)
       for kind in (CarriedStreams, OppositeStreams, JitteredStreams, ShuffledWindows)},
    "SampledWindows": lambda folder, seed: SampledWindows(STREAM, boundary=1, batch_size=4, context=3, seed=seed),
    **{f"Corrupted, {type(noise).__name__}": partial(corrupted, noise) for noise in NOISE},
    **{f"MaskedDocuments, {masking}, {second}": partial(masked, masking, second) for masking, second in MASKED},
    **{f"Bucketed, {name}": lambda folder, seed, make=make: Bucketed(make(), 5, seed)
       for name, make in BUCKETED.items()},
    "Bucketed, in words": of_words,
    "BucketedPairs": partial(pairs, 60), "BucketedPairs, few": partial(pairs, 15),
    "PairsBySentences": sentence_pairs, "Windows": windows, "Cooccurrences": cells,
    "Mixture": parts_of_a_mixture, "MixedCorpora": corpora, "TaskExamples": tasks,
    "MultitaskMixture": multitask,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with tokens and tasks as the stages write them."""
    made = tmp_path_factory.mktemp("tokens")
    for name in ("a/word", "b/word", "task"):
        (made / name).mkdir(parents=True)
    for name in ("a/word", "b/word"):
        (made / name / "tokenizer.json").write_text("{}")
        STREAM.tofile(made / name / "train.bin")
    character.train(["ab", "sentence: task"]).save(made / "tokenizer.json")
    STREAM.tofile(made / "train.bin")
    (made / "task/train.tsv").write_text(TASK)
    return made


def real(lengths: Tensor, values: Tensor) -> Tensor:
    return values[torch.arange(values.shape[1]) < lengths[:, None]]


def things(batch: Any) -> dict[str, tuple[float | None, Tensor]]:
    """Return the content of a batch without padding, and the weight of this batch in the mean over all processes."""
    match batch:
        case Window():
            assert batch.input_ids.shape == batch.labels.shape
            return {"inputs": (1.0, batch.input_ids.flatten()), "labels": (1.0, batch.labels.flatten())}
        case OppositeBatch():
            sides = {"forward": batch.forward, "backward": batch.backward}
            return {f"{side} {name}": thing for side, own in sides.items() for name, thing in things(own).items()}
        case PairBatch():
            sources = real(batch.source_lengths, batch.source_ids)
            targets, labels = (real(batch.target_lengths, each) for each in (batch.target_ids, batch.labels))
            return {"sources": (None, sources), "targets": (None, targets), "labels": (batch.weight, labels)}
        case MaskedBatch():
            tokens, segments = (real(batch.lengths, each) for each in (batch.input_ids, batch.segments))
            assert batch.lengths.max() == batch.input_ids.shape[1] and tokens.sum() == batch.input_ids.sum()
            answers = {} if batch.is_next is None else {"is_next": (1.0, batch.is_next)}
            return {
                "tokens": (batch.token_share, tokens), "segments": (None, segments), "lengths": (None, batch.lengths),
                "labels": (batch.share, batch.labels), "draws": (None, batch.draws), **answers,
            }  # fmt: skip
        case examples.ExampleBatch():
            return {"labels": (batch.weight, batch.labels), "lengths": (batch.weight, batch.lengths),
                    "others": (batch.weight, batch.other_lengths)}  # fmt: skip
        case choices.ChoiceBatch():
            return {"endings": (batch.weight, batch.n_endings), "rows": (batch.rows.weight, batch.rows.lengths)}
        case tagged.TaggedBatch():
            return {"tags": (batch.weight, real(batch.n_words, batch.tags))}
        case questions.QuestionBatch() | questions.PassageBatch():
            return {"contexts": (batch.weight, batch.context_lengths), "answers": (batch.weight, batch.last)}
        case coreference.CoreferenceBatch():
            return {"sentences": (batch.weight, batch.documents.bincount())}
        case images.ImageBatch():
            return {"labels": (batch.weight, batch.labels), "pixels": (batch.weight, batch.images.flatten())}
        case WindowSlice():
            return {name: (None, getattr(batch, name)) for name in ("words", "lines", "reaches")}
        case Cells():
            return {name: (None, each) for name, each in batch._asdict().items()}
    raise AssertionError(f"say what a {type(batch).__name__} holds")


def leaves(batch: Any) -> list[Any]:
    return [leaf for part in batch for leaf in leaves(part)] if isinstance(batch, tuple) else [batch]


def same(one: Any, other: Any) -> bool:
    return all(torch.equal(a, b) if isinstance(a, Tensor) else a == b
               for a, b in zip(leaves(one), leaves(other), strict=True))  # fmt: skip


def test_all_kinds_of_batches_are_there():
    modules = [import_module(f"retable.data.{info.name}") for info in pkgutil.iter_modules(retable.data.__path__)]
    kinds = {kind.__name__ for module in modules for _, kind in inspect.getmembers(module, inspect.isclass)
             if kind.__module__ == module.__name__ and hasattr(kind, "batch")}  # fmt: skip
    assert kinds - {"Batches"} == {name.partition(",")[0] for name in KINDS}


@pytest.mark.parametrize("name", KINDS)
def test_a_batch_is_a_function_of_seed_and_step(name, folder):
    batches, other = KINDS[name](folder, 1), KINDS[name](folder, 2)
    n = batches.steps_per_epoch
    steps = [2 * n + 1, 0, n - 1, n, 1, 0]
    for step in steps:
        assert same(batches.batch(step), KINDS[name](folder, 1).batch(step)), step
    if name not in ("CarriedStreams", "OppositeStreams"):  # these batches are not random
        assert not all(same(batches.batch(step), other.batch(step)) for step in steps)
        assert not all(same(batches.batch(step), batches.batch(step + n)) for step in range(min(n, 3)))


@pytest.mark.parametrize("name", KINDS)
def test_the_processes_batches_make_up_the_whole(name, folder):
    batches = KINDS[name](folder, 1)
    bucketed = name.startswith(("Bucketed", "PairsBySentences"))
    for step in (0, 1, batches.steps_per_epoch + 1):
        batch = batches.batch(step)
        whole = things(batch)
        for world in (1, 2, 3, 9) if bucketed or name in ("Windows", "Cooccurrences") else (1, 2, 4):
            shares = [batches.batch(step, rank, world) for rank in range(world)]
            if name == "Windows":
                assert max(len(share.words) for share in shares) - min(len(share.words) for share in shares) <= 1
            parts = [things(share) for share in shares]
            if isinstance(batch, Window):
                assert {(share.fresh, share.scale) for share in shares} == {(batch.fresh, batch.scale)}
            for key, (weight, values) in whole.items():
                own = [part[key] for share, part in zip(shares, parts, strict=True) if getattr(share, "weight", 1)]
                together = torch.cat([tensor for _, tensor in own])
                in_order = (lambda tensor: tensor.sort().values) if bucketed else (lambda tensor: tensor)
                assert torch.equal(in_order(together), in_order(values)), (key, world)
                if weight is not None:
                    means = [share * tensor.double().mean().item() for share, tensor in own if len(tensor)]
                    assert weight == 1 and sum(means) / world == pytest.approx(values.double().mean().item()), key


OF_STREAMS = [name for name in KINDS if name.startswith(("Carr", "Opp", "Jitt", "Shuf", "Corrupted", "Masked"))]


@pytest.mark.parametrize("name", OF_STREAMS)
def test_batches_of_shards_are_those_of_the_whole(name, folder, monkeypatch):
    whole = KINDS[name](folder, 3)
    monkeypatch.setitem(globals(), "STREAM", Shards([STREAM[a:b] for a, b in pairwise((0, 1, 250, 601, 900))]))
    shards = KINDS[name](folder, 3)
    assert shards.steps_per_epoch == whole.steps_per_epoch
    for step in (0, 1, whole.steps_per_epoch - 1, whole.steps_per_epoch):
        assert same(shards.batch(step), whole.batch(step))


# Kinds of batches whose rows are divided evenly among the processes.
EVEN = ["CarriedStreams", "OppositeStreams", "JitteredStreams", "ShuffledWindows", "Corrupted, Prefix"]


@pytest.mark.parametrize("name", [*EVEN, "MaskedDocuments, token, none"])
def test_processes_that_do_not_divide_the_batch_are_refused(name, folder):
    with pytest.raises(UsageError, match="a batch of 4 cannot be shared evenly by 3 processes"):
        KINDS[name](folder, 1).batch(0, 0, 3)


@pytest.mark.parametrize("name", BUCKETED)
def test_an_epoch_has_all_examples_once_as_they_are_padded_alone(name):
    encoded = BUCKETED[name]()
    batches = Bucketed(encoded, 5, seed=1)
    epoch = [things(batches.batch(step)) for step in range(batches.steps_per_epoch)]
    alone = things(encoded.pad(np.arange(N)))
    for key, (_, values) in alone.items():
        read = torch.cat([batch[key][1] for batch in epoch])
        assert torch.equal(read.sort().values, values.sort().values)
    order = []
    for places, batch in in_order_of_length(encoded, 5):
        assert same(batch, encoded.pad(places))
        order += places.tolist()
    assert order == sorted(range(N), key=lambda place: encoded.lengths[place])
