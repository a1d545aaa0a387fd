"""Small models with every objective, and batches of any of their examples.

`test_objectives.py` fails for a class of `retable.objectives` without a case.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch

import retable.objectives
from retable.data.choices import Choices, pad_choices
from retable.data.examples import ExampleBatch, Inputs
from retable.data.images import ImageBatch
from retable.data.masking import MaskedBatch
from retable.data.pairs import pad
from retable.data.questions import PassageExample, QuestionExample, pad_passages, pad_questions
from retable.data.streams import OppositeBatch, TokenBatch
from retable.data.tagged import TaggedExample, pad_tagged
from retable.data.windows import WindowSlice
from retable.objectives.base import Objective
from tests.contracts import model_cases
from tests.contracts.model_cases import CASES as MODELS
from tests.contracts.model_cases import IDS, LENGTHS, OTHER_LENGTHS, OTHERS, B, T, V, classes, cut, models, spread

objectives = SimpleNamespace(**{kind.__name__: kind for kind in classes(retable.objectives, Objective)})  # by name

COUNTS = np.array([60, 30, 20, 15, 12, 10, 8, 6, 5, 4, 1])
CLASSES, SCORES = torch.tensor([0, 2, 1, 1]), torch.tensor([4.0, 1.5, 2.0, 5.0])
N_ENDINGS = [2, 4, 3, 2]
TAGS = ["O", "B-x", "I-x", "B-y", "I-y"]
TAGGERS = {
    "softmax": {}, "crf": {"crf": True}, "scheme": {"crf": True, "scheme": "IOB2"},
    "features": {"crf": True, "n_features": 6},
}  # fmt: skip
FEATURES = torch.tensor([[[1, 2, 0], [3, 0, 0], [4, 1, 5], [6, 6, 2]]]).expand(B, -1, -1)  # of each word

Rows = Sequence[int]


class Case(NamedTuple):
    """A function from dropout rate to an objective, and a function from examples to their batch."""

    make: Callable[[float], Objective]
    batch: Callable[[Objective, Rows], Any]
    sizes: Sequence[int] | None = None  # weights of examples in the loss; None if the loss is not a mean


def ids_of(rows: Rows, ids: torch.Tensor = IDS, lengths: torch.Tensor = LENGTHS) -> list[list[int]]:
    return [ids[row, : lengths[row]].tolist() for row in rows]


def tokens(_: Objective, rows: Rows) -> TokenBatch:
    window = IDS[list(rows)]
    return TokenBatch(window[:, :-1], window[:, 1:], fresh=True)


def both_ways(_: Objective, rows: Rows) -> OppositeBatch:
    return OppositeBatch(*(TokenBatch(w[:, :-1], w[:, 1:], True) for w in (IDS[list(rows)], IDS[list(rows)].flip(1))))


def examples(objective: Objective, rows: Rows, labels: torch.Tensor = CLASSES, pairs: bool = False) -> ExampleBatch:
    """Return rows of ids; ids after the end of a row are random."""
    batch = ExampleBatch(*cut(rows, IDS, LENGTHS), labels[list(rows)])
    if pairs:
        other_ids, other_lengths = cut(rows, OTHERS, OTHER_LENGTHS)
        batch = batch._replace(other_ids=other_ids, other_lengths=other_lengths)
    return batch


def choices(objective: Objective, rows: Rows) -> Any:
    """Return two to four endings per example, of one to four words each, in the form of the model's pairs."""
    beginnings, layout = [ids[:3] for ids in ids_of(range(B))], objective.model.layout
    endings = [list(range(1, 2 + k)) for n in N_ENDINGS for k in range(n)]
    pairs = list(
        zip([ids for ids, n in zip(beginnings, N_ENDINGS, strict=True) for _ in range(n)], endings, strict=True)
    )
    if layout == "apart":
        inputs = Inputs(*map(list, zip(*pairs, strict=True)))
    else:
        segments = [len(first) + 1 for first, _ in pairs] if layout == "in segments" else None
        inputs = Inputs([[*first, 0, *second, 0] for first, second in pairs], segments=segments)
    return pad_choices(Choices(inputs, np.array(N_ENDINGS), [1, 3, 0, 0]), np.array(rows))


def tagged(objective: Objective, rows: Rows) -> Any:
    """Return tagged words of one or several tokens; the tags are valid IOB2."""
    made = [
        TaggedExample(IDS[0, :5].tolist(), [0, 1, 4], [1, 2, 0], 2),
        TaggedExample(IDS[1, :1].tolist(), [0], [3], 0),
        TaggedExample(IDS[2, :7].tolist(), [1, 2, 3, 5], [0, 3, 4, 1], 3),
        TaggedExample(IDS[3, :3].tolist(), [0, 2], [3, 4], 0),
    ]
    batch = pad_tagged(
        [each if objective.model.marks_predicates else each._replace(predicate=None) for each in made], rows
    )
    if getattr(objective, "features", None) is not None:
        batch = batch._replace(features=FEATURES[list(rows), : batch.tags.shape[1]])
    padding = torch.arange(batch.tags.shape[1]) >= batch.n_words[:, None]
    return batch._replace(tags=batch.tags.masked_fill(padding, 2))


def asked(_: Objective, rows: Rows) -> Any:
    places = [(2, 4), (0, 0), (1, 6), (0, 1)]
    questions = ids_of(range(B), OTHERS, OTHER_LENGTHS)
    made = [
        QuestionExample(*each, *place)
        for each, place in zip(zip(ids_of(range(B)), questions, strict=True), places, strict=True)
    ]
    return pad_questions(made, rows)


def passages(_: Objective, rows: Rows) -> Any:
    made = [
        PassageExample([7, 1, 8, 2, 3, 4, 5, 0], 3, [3, 5, 6], [4, 5, 6], 0, 1),
        PassageExample([7, 8, 6, 0], 2, [2], [2], 0, 0),
        PassageExample([5, 0, 6, 3, 2], 2, [2, 3, 4], [2, 3, 4], 2, 2),
        PassageExample([5, 0, 6, 3], 2, [2, 3], [2, 3], 0, 1),
    ]
    return pad_passages(made, rows)


def texts(_: Objective, rows: Rows) -> Any:
    return pad(ids_of(range(B)), ids_of(range(B), OTHERS, OTHER_LENGTHS), np.array(rows))


def masked(_: Objective, rows: Rows, pairs: bool = False) -> MaskedBatch:
    ids, lengths = cut(rows, IDS, LENGTHS)
    longest = ids.shape[1]
    places = torch.arange(len(rows)) * longest + (lengths - 1).clamp(max=1)
    generator = torch.Generator().manual_seed(2)
    draws, labels = torch.rand(len(places), generator=generator), OTHERS[list(rows), 0]
    is_next = CLASSES[list(rows)] % 2 if pairs else None
    return MaskedBatch(
        ids, model_cases.SEGMENTS[list(rows), :longest], lengths, places, labels, is_next, draws, 1.0, 1.0
    )


def pictures(_: Objective, rows: Rows) -> ImageBatch:
    return ImageBatch(model_cases.IMAGES[list(rows)], CLASSES[list(rows)])


def windows(_: Objective, rows: Rows) -> WindowSlice:
    return WindowSlice(IDS.flatten(), torch.arange(B).repeat_interleave(T), torch.full((B * T,), 2), window=2)


def language_model(kind: type, name: str, **settings: Any) -> Callable[[float], Objective]:
    settings = {"tie": False, "bias": True, "reduction": "mean"} | SOFTMAXES[kind] | settings
    return lambda dropout: kind(MODELS[name](dropout), V, **settings)


SOFTMAXES: dict[type, dict[str, Any]] = {
    objectives.CausalLM: {},
    objectives.AdaptiveSoftmax: {"cutoffs": [3, 6], "division": 2.0},
    objectives.HierarchicalLM: {},
    objectives.MaxEntropyLM: {"order": 3, "table_size": 37 * 64 + 5},
    objectives.SampledSoftmax: {"samples": 4, "power": 1.0},
    objectives.NoiseContrastive: {"samples": 4, "power": 1.0, "learn_normaliser": True},
    objectives.BlackOut: {"samples": 4, "power": 0.4},
}
LANGUAGE_MODELS = {
    f"{kind.__name__} on {name}": language_model(kind, name)
    for kind in SOFTMAXES
    for name in (("lstm", "gpt") if kind is objectives.CausalLM else ("lstm",))
}


def words(ids: list[int]) -> str:
    return " ".join(map(str, ids))


GENERATOR = partial(models.BERT, d_model=4, n_layers=1, n_heads=2, d_embedding=model_cases.E, pooler=False)
ONE, ENDS = [1] * B, OTHER_LENGTHS.tolist()
CASES: dict[str, Case] = {
    **{name: Case(make, tokens, ONE) for name, make in LANGUAGE_MODELS.items()},
    "CausalLM, tied": Case(language_model(objectives.CausalLM, "gpt", tie=True, bias=False), tokens, ONE),
    "CausalLM, projection": Case(language_model(objectives.CausalLM, "lstm", projection=0.15), tokens, ONE),
    "BidirectionalLM": Case(lambda p: objectives.BidirectionalLM(MODELS["elmo"](p), V), both_ways, ONE),
    **{
        f"classification, {n}": Case(lambda p, n=n: objectives.Classification(MODELS[n](p), 3, p), examples, ONE)
        for n in ("bert", "bilstm", "lstm", "convolutions")
    },
    "classification, language model, gpt": Case(
        lambda p: objectives.Classification(MODELS["gpt"](p), 3, p, auxiliary=0.5, pairs=True),
        partial(examples, pairs=True),
    ),
    **{
        f"classification, pairs, {n}": Case(
            lambda p, n=n: objectives.Classification(MODELS[n](p), 3, p, pairs=True), partial(examples, pairs=True), ONE
        )
        for n in ("bilstm with attention", "deep averaging")
    },
    **{
        f"choice, {n}": Case(lambda p, n=n: objectives.MultipleChoice(MODELS[n](p), p), choices, ONE)
        for n in ("bert", "gpt", "bilstm with attention", "convolutions")
    },
    "regression": Case(
        lambda p: objectives.Regression(MODELS["bilstm"](p), 1.0, 5.0, p, pairs=True),
        partial(examples, labels=SCORES, pairs=True),
        ONE,
    ),
    **{
        f"tagging, {layer}, {n}": Case(
            lambda p, n=n, s=s: objectives.Tagging(MODELS[n](p), TAGS, p, **s), tagged, [3, 1, 4, 2]
        )
        for layer, n in (("softmax", "bert"), ("crf", "bilstm"), ("scheme", "tagger"), ("features", "lstm tagger of 2"))
        for s in (TAGGERS[layer],)
    },
    "answers, bidaf": Case(lambda p: objectives.AnswerSpan(MODELS["bidaf"](p), p), asked, ONE),
    **{
        f"answers, {n}": Case(lambda p, n=n: objectives.AnswerSpan(MODELS[n](p), p), passages, ONE)
        for n in ("bert", "gpt")
    },
    "prefixes, lstm": Case(
        lambda p: objectives.PrefixClassification(MODELS["lstm"](p), 3, p), examples, LENGTHS.tolist()
    ),
    **{
        f"text to text, {n}": Case(lambda p, n=n: objectives.TextToText(MODELS[n](p), V, n[-1] == "0"), texts, ENDS)
        for n in model_cases.T5S
    },
    "prefix lm": Case(lambda p: objectives.PrefixLM(MODELS["one-stack t5"](p), V, tie=True), texts, ENDS),
    **{
        f"translation, {n}": Case(
            lambda p, n=n: objectives.Translation(MODELS[n](p), V, 0.1, n == "transformer", True), texts, ENDS
        )
        for n in ("rnn, bilinear", "transformer")
    },
    "labels as text": Case(
        lambda p: objectives.LabelsAsText(
            MODELS["t5 v1.0"](p), V, True, [[7, 1], [8, 9, 1], [8, 1]], lambda ids: ids[0]
        ),
        examples,
        ONE,
    ),
    "answer as text": Case(lambda p: objectives.AnswerAsText(MODELS["t5 v1.1"](p), V, False, words), texts, ENDS),
    "summary as text": Case(lambda p: objectives.SummaryAsText(MODELS["t5 v1.0"](p), V, True, words, 5), texts, ENDS),
    "images, vit": Case(lambda p: objectives.ImageClassification(MODELS["vit"](p), 3, p), pictures, ONE),
    "masked lm, bilstm": Case(lambda p: objectives.MaskedLM(MODELS["bilstm"](p), V, False, tie=False), masked, ONE),
    "masked lm, bert": Case(lambda p: objectives.MaskedLM(MODELS["bert, pre-norm"](p), V, False), masked, ONE),
    "masked lm, next sentence": Case(
        lambda p: objectives.MaskedLM(MODELS["bert"](p), V, True), partial(masked, pairs=True), ONE
    ),
    "replaced tokens": Case(
        lambda p: objectives.ReplacedTokenDetection(
            MODELS["bert, without pooler"](p), V, partial(GENERATOR, max_length=model_cases.LONG, dropout=p)
        ),
        masked,
    ),
    **{
        kind.__name__: Case(lambda p, kind=kind: kind(MODELS["skip-gram"](p), COUNTS), windows)
        for kind in (objectives.FullSoftmax, objectives.HierarchicalSoftmax, objectives.NegativeSampling)
    },
}


def build(name: str, dropout: float = 0.0, seed: int = 0) -> Objective:
    torch.default_generator.manual_seed(seed)
    objective = CASES[name].make(dropout)
    spread(objective)
    if hasattr(objective, "count"):
        objective.count(COUNTS)
    return objective.eval()


@cache
def built(name: str) -> Objective:
    """Return an objective in evaluation mode that tests share and must not change; in training it would have dropout
    0.5.
    """
    return build(name, dropout=0.5)


def batch_of(name: str, objective: Objective, rows: Rows = range(B)) -> Any:
    return CASES[name].batch(objective, rows)


def loss_of(name: str, objective: Objective, rows: Rows = range(B), **changed: Any) -> tuple[torch.Tensor, dict, Any]:
    """Return the loss, metrics and state of a batch; the noise is always the same."""
    batch = batch_of(name, objective, rows)
    torch.default_generator.manual_seed(0)
    return objective.loss(batch._replace(**changed), None, 0)
