"""Test every model with every kind of task: it trains and predicts, or is refused before data are read."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hydra.utils import get_class

import retable
from retable.core.errors import UsageError
from retable.corpora.choice_files import ChoiceFiles
from retable.corpora.coreference import Document, DocumentFiles, write_documents
from retable.corpora.squad import read_triples
from retable.data.bucketed import on_device
from retable.data.spelling import Vocabulary
from retable.generation.sampling import Greedy
from retable.inference.build import build_model
from retable.metrics.answers import exact_match, word_f1
from retable.tasks.base import Task
from retable.tasks.choices import ChoiceTask
from retable.tasks.clusters import CoreferenceTask
from retable.tasks.questions import QuestionFiles, QuestionTask
from retable.tasks.sentences import SentenceTask
from retable.tasks.summaries import SummaryFiles, SummaryTask
from retable.tasks.tagged import TaggedFiles, TaggingTask
from retable.tasks.translation import TranslationTask
from retable.tokenizers import word
from tests.pipelines.recipes import composed

SPLITS = ("train", "validation", "test")
NAMES, VERBS = ("dogs", "cats", "birds", "mice"), ("run", "see", "eat")
TOKENIZER = word.train(
    [f"{' '.join(NAMES)} {' '.join(VERBS)} who in the town sentence question answer good bad . ?"],
    marks=["[PAD]", "[CLS]", "[SEP]", "[MASK]"],
)
TRANSFORMER = ("model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.max_length=32")
SPELT = ("model.d_embedding=6", "model.d_character=3", "model.filters=[[2,4]]")
ELMO = (
    "model.elmo.d_model=8", "model.elmo.d_cell=8", "model.elmo.filters=[[1,4]]", "model.elmo.n_layers=1",
    "model.d_model=8",
)  # fmt: skip
SYSTEMS: dict[str, tuple[str, ...]] = {  # small models, by recipe
    "bag_of_words": (),
    "deep_averaging": (),
    "cnn": ("model.d_embedding=8", "model.n_features=4"),
    "cnn_one_hot": ("model.n_features=4",),
    "deep_cnn": ("model.d_embedding=8", "model.d_model=16", "model.n_blocks=2"),
    "bilstm": ("model.d_embedding=8", "model.d_model=16"),
    "bilstm_one_hot": ("model.d_model=16",),
    "bilstm_attention": ("model.d_embedding=8", "model.d_model=16"),
    "bilstm_elmo": (*ELMO, "model.d_embedding=8"),
    "bert": TRANSFORMER,
    "electra": TRANSFORMER,
    "gpt": TRANSFORMER,
    "gpt_special_tokens": TRANSFORMER,
    "lstm": (),
    "t5_toy_encoder": ("model.d_model=16", "model.n_layers=1", "model.d_ff=16"),
    "t5_toy_spans": ("model.d_model=16", "model.n_layers=1", "model.d_ff=16"),
    "rnn_translation": ("model.d_model=16", "model.d_embedding=16"),
    "convolutional_translation": ("model.d_model=16", "model.d_hidden=16", "model.n_layers=1"),
    "bilstm_tagger": (*SPELT, "model.d_model=16"),
    "window_tagger": (*SPELT, "model.d_model=16"),
    "elmo_tagger": (*ELMO, *SPELT),
    "bidaf": (*SPELT, "model.d_hidden=8"),
    "bidaf_elmo": (*ELMO[:-1], *SPELT, "model.d_hidden=8"),
    "mention_ranker": (*SPELT, "model.d_model=12", "model.d_feature=4", "model.d_hidden=12", "model.max_width=2",
        "model.spans_per_word=1.5"),
    "elmo": (),
}  # fmt: skip
# models with a state for each token
GPTS = {"gpt", "gpt_special_tokens"}
IN_TOKENS = {"bilstm", "bilstm_one_hot", "bilstm_elmo", "deep_cnn", "bert", "electra", *GPTS, "lstm", "t5_toy_encoder"}
STATES = IN_TOKENS | {"bilstm_tagger", "window_tagger", "elmo_tagger"}
SUMMED_UP = STATES | {"bag_of_words", "deep_averaging", "cnn", "cnn_one_hot"}
WRITERS = {"t5_toy_spans", "rnn_translation", "convolutional_translation"}
SUMMARY = {"dropout": 0.0, "auxiliary": 0.0, "d_hidden": None, "pooling": None}


def files(folder: Path, ending: str) -> dict[str, str]:
    return {split: str(folder / f"{split}.{ending}") for split in SPLITS}


def sentences(folder: Path, *columns: str) -> SentenceTask:
    return SentenceTask("sentence", files(folder, "csv"), columns, "label", ["accuracy"], ["good", "bad"])


def answers(folder: Path) -> QuestionTask:
    paths = files(folder, "json")
    return QuestionTask(QuestionFiles(paths["train"], paths["test"], 2, read_triples, read_triples))


def choices(folder: Path) -> ChoiceTask:
    return ChoiceTask(ChoiceFiles(**files(folder, "jsonl"), context="ctx", endings="endings", label="label"))


def summaries(folder: Path) -> SummaryTask:
    return SummaryTask(SummaryFiles(**files(folder, "tsv")), max_tokens=32, max_new_tokens=8, stemmer=False)


def translations(folder: Path) -> TranslationTask:
    return TranslationTask(str(folder), Greedy(4, 0, 0, 1.0, 8), "greedy", 32, 0)


# For each kind: the task of the files in a folder, the settings of its head, and the models that support it.
KINDS: dict[str, tuple[Callable[[Path], Task], dict, set[str]]] = {
    "sentences": (lambda folder: sentences(folder, "one"), SUMMARY | {"tie": True}, SUMMED_UP | WRITERS),
    "pairs": (lambda folder: sentences(folder, "one", "two"), SUMMARY | {"tie": True},
        SUMMED_UP | WRITERS | {"bilstm_attention"}),
    "choices": (choices, SUMMARY, SUMMED_UP | {"bilstm_attention"}),
    "tags": (lambda folder: TaggingTask(TaggedFiles(**files(folder, "tags"))), {"dropout": 0.0, "crf": False}, STATES),
    "chunks": (lambda folder: TaggingTask(TaggedFiles(**files(folder, "tags")), "IOBES"),
        {"dropout": 0.0, "crf": True}, STATES),
    "answers": (answers, {"dropout": 0.0}, STATES | WRITERS | {"bidaf", "bidaf_elmo"}),
    "clusters": (lambda folder: CoreferenceTask(DocumentFiles(**files(folder, "conll"))), {}, {"mention_ranker"}),
    "summaries": (summaries, {"tie": True}, WRITERS),
    "translations": (translations, {"label_smoothing": 0.0, "tie": True, "bias": False}, WRITERS),
}  # fmt: skip
SERVED = [(kind, system) for kind, (_, _, systems) in KINDS.items() for system in SYSTEMS if system in systems]
REFUSED = [(kind, system) for kind in KINDS for system in SYSTEMS if (kind, system) not in SERVED]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Write the files of every kind, with a dozen examples per split."""
    folder, generator = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for split in SPLITS:
        rows = [(NAMES[k % 4], generator.choice(NAMES), generator.choice(VERBS), k % 2) for k in range(12)]
        labelled = [f"the {a} {v},the {b} {v},{('good', 'bad')[label]}" for a, b, v, label in rows]
        (folder / f"{split}.csv").write_text("\n".join(["one,two,label", *labelled]))
        chosen = [{"ctx": f"the {a}", "endings": [f"{v} .", "the in"], "label": 0} for a, _, v, _ in rows]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chosen))
        tagged = [f"the B-NP\n{a} I-NP\n{v} O\n{b} B-NP\n\n" for a, b, v, _ in rows]
        (folder / f"{split}.tags").write_text("".join(tagged))
        triples = [
            {"context": f"the {a} {v} in town {k} .", "question": f"who {v} ?", "answer": f"the {a}"}
            for k, (a, _, v, _) in enumerate(rows)
        ]
        (folder / f"{split}.json").write_text(json.dumps(triples))
        documents = [Document(f"{split}/{k}", 0, [[a, v], [a, v]], [[(0, 1), (2, 3)]]) for k, (a, _, v, _) in
                     enumerate(rows)]  # fmt: skip
        write_documents(folder / f"{split}.conll", documents)
        summed = [f"the {a} {v} . in {b} .\tthe {a} ." for a, b, v, _ in rows]
        (folder / f"{split}.tsv").write_text("\n".join(["text\tsummary", *summed]))
        for side in ("source", "target"):
            (folder / f"{split}.{side}.txt").write_text("".join(f"the {a} {v}\n" for a, _, v, _ in rows))
    return folder


@cache
def of_recipe(system: str):
    return composed("finetune", system, "task=grammar_pos", *SYSTEMS[system])


@pytest.mark.parametrize(("kind", "system"), SERVED)
def test_it_learns_and_predicts(kind, system, data):
    make, head, _ = KINDS[kind]
    task, cfg = make(data), of_recipe(system)
    task.require(model_class := get_class(cfg.model._target_), cfg.model.get("d_predicate", 0))
    examples = {split: task.examples(split) for split in task.splits}
    spelt = task.in_words and model_class.reads_words
    text = Vocabulary.of_texts(*([*task.words(examples[split])] for split in ("train", "test"))) if spelt else TOKENIZER
    torch.manual_seed(0)
    model = build_model(cfg, text, dropout=0.0)
    objective = task.objective(model, text, **head)
    encoded = {split: task.encode(model, text, examples[split]) for split in ("train", "test")}
    batches = task.batches(encoded["train"], 12 if kind != "translations" else 48, seed=1)
    weights = [each for each in objective.parameters() if each.requires_grad]
    optimizer = torch.optim.Adam(weights, lr=0.01)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss, _, _ = objective.loss(on_device(torch.device("cpu"), batches.batch(0)), None, 0)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses
    objective.eval()
    units = task.units(examples["test"], task.predict(objective, encoded["test"]))
    assert len(units) == len(examples["test"])
    assert all(np.isfinite(value) for value in task.score(units).values()) and task.score(units)


@pytest.mark.parametrize(("kind", "system"), REFUSED)
def test_it_is_refused_in_a_line_before_its_files_are_looked_for(kind, system):
    cfg = of_recipe(system)
    with pytest.raises(UsageError) as refusal:
        KINDS[kind][0](Path("nowhere")).require(get_class(cfg.model._target_), cfg.model.get("d_predicate", 0))
    line, name = str(refusal.value), cfg.model._target_.rpartition(".")[2]
    assert line.startswith(f"{name} ") and "\n" not in line and "recipe=" in line


@pytest.mark.parametrize(("task", "recipe"), [("rte", "coreference/mention_ranker"), ("translation", "bert/bert")])
def test_the_stage_refuses_a_model_before_it_looks_for_files(project, task, recipe):
    line = project.refuse("finetune", f"task={task}", f"recipe={recipe}", RETABLE_DATA="nowhere")
    name = composed("finetune", recipe.partition("/")[2]).model._target_.rpartition(".")[2]
    assert line.startswith(f"error: {name} ") and "recipe=" in line and "nowhere" not in line


def test_a_model_that_serves_looks_for_files(project):
    assert "nowhere" in project.refuse("finetune", "task=squad", "recipe=bert/bert", RETABLE_DATA="nowhere")


@pytest.fixture(scope="module")
def marked(project):
    project.succeed("tokenize", "corpus=grammar_tiny", "tokenizer=word_marked")
    return project


def test_a_bert_tags_and_counts_what_it_could_not_read(marked):
    marked.succeed(
        "finetune", "task=grammar_pos", "recipe=bert/bert", "corpus=grammar_tiny", *TRANSFORMER[:3],
        "model.max_length=8", "epochs=2", "optimizer.lr=0.01", "task.sentences.text.scale=0.1",
        "task.sentences.text.words={train: 800, validation: 100, test: 200}",
    )  # fmt: skip
    folder = marked.folder / "outputs/from_scratch/grammar_pos/bert-1"
    run = json.loads((folder / "run.json").read_text())
    sentences = [each.split("\n") for each in (folder / "test.tags.txt").read_text().strip().split("\n\n")]
    assert run["shortened"]["test"] == sum(len(each) > 6 for each in sentences) > 0
    behind = {row.split(" ")[2] for each in sentences for row in each[6:]}
    assert len(behind) == 1 and all(len(row.split(" ")) == 3 for each in sentences for row in each)
    assert json.loads((folder / "metrics.json").read_text())["tagging/test/accuracy"] > 0


@pytest.mark.parametrize("recipe", ["bert/bert", "transformer/gpt"])
def test_an_encoder_answers_from_its_passages(marked, data, recipe):
    marked.succeed(
        "finetune", "task=squad", f"recipe={recipe}", "corpus=grammar_tiny", "tokenizer=word_marked", *TRANSFORMER,
        "task.questions.held_out=2",
        "+task.questions.read_test=${task.questions.read_train}", "epochs=1",
        *(f"task.questions.{split}={data / f'{split}.json'}" for split in ("train", "test")),
    )  # fmt: skip
    folder = marked.folder / f"outputs/from_scratch/squad/{recipe.partition('/')[2]}-1"
    predictions = json.loads((folder / "predictions.json").read_text())
    contexts = [row["context"] for row in json.loads((data / "test.json").read_text())]
    assert len(predictions) == 12 and all(predictions[str(k)] in context for k, context in enumerate(contexts))
    assert set(json.loads((folder / "run.json").read_text())["shortened"].values()) == {0}


def test_a_t5_writes_its_answers(marked, data):
    marked.succeed(
        "finetune", "task=squad", "recipe=readers/t5_reader", "corpus=grammar_tiny", "model.d_model=16",
        "model.d_ff=16", "model.n_layers=1", "task.questions.held_out=2",
        "+task.questions.read_test=${task.questions.read_train}", "epochs=2",
        *(f"task.questions.{split}={data / f'{split}.json'}" for split in ("train", "test")),
    )  # fmt: skip
    folder = marked.folder / "outputs/from_scratch/squad/t5_reader-1"
    rows, predictions = (json.loads(path.read_text()) for path in (data / "test.json", folder / "predictions.json"))
    units = pd.read_csv(folder / "units.csv").query("split == 'test'")
    scores = [(exact_match(predictions[str(k)], [row["answer"]]), word_f1(predictions[str(k)], [row["answer"]]))
              for k, row in enumerate(rows)]  # fmt: skip
    assert units[["exact_match", "f1"]].to_numpy().tolist() == [[int(match), pytest.approx(f1)] for match, f1 in scores]
    system = retable.load(folder)
    assert [system.answer(row["question"], row["context"]) for row in rows] == [*predictions.values()]
