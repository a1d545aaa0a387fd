"""Test models of the default study in transformers: rotary GPTs and BERTs, and classifiers on their pooled states."""

import re
from pathlib import Path

import pytest
import torch

from pipelines.study.compose import composing, conf, configuration
from retable.core.errors import UsageError
from retable.core.settings import build
from retable.data.examples import ExampleBatch
from retable.evaluation.likelihood import NeuralLM, SlidingWindow
from retable.exchange.card import Card
from retable.exchange.checkpoint import Checkpoint
from retable.exchange.export import export
from retable.exchange.families import counterpart
from retable.exchange.modeling_pooled import PooledForSequenceClassification
from retable.generation.next_token import next_token
from retable.generation.sampling import Greedy
from retable.inference.build import build_model, build_objective
from retable.objectives.causal_lm import CausalLM
from retable.objectives.classification import Classification
from retable.objectives.regression import Regression
from retable.planning.study import read_study
from retable.tasks.base import Task
from retable.tasks.sentences import Example
from retable.tokenizers import word
from retable.tokenizers.tokenizer import Tokenizer
from tests.exchange.cases import LINES, exported, system, widened

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
CLASSES, CHECKOUT = transformers.AutoModelForSequenceClassification, Path(__file__).parents[2]
MARKS = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = [LINES[0], "a bird", "no unheard bird", *LINES[1:]]


def study_cells():
    """Return each cell of the default study that has weights, with one seed per system."""
    study = read_study(conf(), CHECKOUT / "studies/history/study.yaml")
    cells = {re.sub(r"-\d+$", "", place): cell for place, cell in study.cells.items()}
    return {place: cell for place, cell in cells.items() if cell.stage in ("pretrain", "from_scratch", "finetune")}


CELLS = study_cells()


def built(place: str, tokenizer: Tokenizer, small: bool):
    """Return the objective of a cell and its task; with `small`, the model is narrow."""
    with composing():
        config = configuration(CELLS[place])
    config["model"] |= {"d_model": 16, "n_heads": 2, "max_length": 24} if small else {}
    task = build(config["task"], "task", Task) if config.get("task") else None
    model = build_model(config, tokenizer)
    if task is None:
        return build_objective(config, tokenizer, model), None
    return task.objective(model, tokenizer, **config["head"]), task


def architectures(place: str) -> list[str]:
    """Return transformers' class for a cell of the study, and the backbone's class if code is exported with it."""
    tokenizer = word.train(LINES, marks=MARKS)
    with composing():
        config = configuration(CELLS[place])
    if "task" not in config and config["objective"] is None:
        return []
    with torch.device("meta"):
        model = build_model(config, tokenizer)
        try:
            backbone = counterpart(model)[1].architecture
        except UsageError:
            return []
        head = counterpart(built(place, tokenizer, small=False)[0])[1]
    return [head.architecture, backbone] if head.remote else [head.architecture]


def listed() -> dict[str, list[str]]:
    """Return the page's table: the classes for each cell of the study."""
    page = (CHECKOUT / "docs/howto/huggingface.md").read_text(encoding="utf-8")
    table = page.partition("| cell, without its seed |")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    classes = {cells: re.findall(r"`([A-Z]\w+)`", kind) for cells, kind in rows}
    return {name: kinds for cells, kinds in classes.items() for name in re.findall(r"`([^`]+)`", cells)}


def test_the_page_lists_all_cells_of_the_study_and_their_classes():
    assert listed() == {place: architectures(place) for place in CELLS}
    assert {kinds[0] for kinds in listed().values() if kinds} == {
        "Starcoder2ForCausalLM", "EsmForMaskedLM", "PooledForSequenceClassification",
    }  # fmt: skip


EXPORTING = [place for place, kinds in listed().items() if kinds]


def made(place: str, tmp_path):
    """Return a small system of a cell with weights far from initial ones, its task, tokenizer and exported folder."""
    marked = CELLS[place].settings.get("tokenizer") == "word_marked"
    tokenizer = word.train(LINES, marks=MARKS if marked else [])
    torch.manual_seed(0)
    objective, task = built(place, tokenizer, small=True)
    names = {} if task is None else {"labels": task.labels.names}
    export(widened(objective).eval(), tokenizer, tmp_path, Card("small"), **names)
    return objective, task, tokenizer


def opened(kind, folder):
    model, info = kind.from_pretrained(folder, output_loading_info=True, trust_remote_code=True)
    assert not any(info.values()), info
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)


@torch.no_grad()
@pytest.mark.parametrize("place", EXPORTING)
def test_logits_and_ids_of_each_model_of_the_study_are_equal(place, tmp_path):
    ours, task, tokenizer = made(place, tmp_path)
    if task is not None:
        theirs, its_tokenizer = opened(CLASSES, tmp_path)
        batch = task.encode(ours.model, tokenizer, [Example((text,), 0) for text in TEXTS]).pad(range(len(TEXTS)))
        read = its_tokenizer(TEXTS, padding=True, return_tensors="pt")
        assert read.attention_mask.sum(1).tolist() == batch.lengths.tolist()
        assert torch.equal(read.input_ids * read.attention_mask, batch.input_ids * read.attention_mask)
        expected, logits = ours(batch), theirs(**read).logits
        assert (expected - logits).abs().max() < 1e-5 and expected.abs().max() > 0.1
        assert theirs.config.id2label == dict(enumerate(task.labels.names))
        long = its_tokenizer([" ".join(LINES * 3)], truncation=True).input_ids
        cut = task.encode(ours.model, tokenizer, [Example((" ".join(LINES * 3),), 0)]).pad([0])
        assert long == cut.input_ids.tolist() and len(long[0]) == 24
        return
    causal = isinstance(ours, CausalLM)
    theirs, its_tokenizer = opened(
        transformers.AutoModelForCausalLM if causal else transformers.AutoModelForMaskedLM, tmp_path
    )
    for text in TEXTS:
        read = its_tokenizer(text, return_tensors="pt")
        ends = [] if causal else [tokenizer.special_ids[mark] for mark in ("[CLS]", "[SEP]")]
        assert read.input_ids.tolist()[0] == [*ends[:1], *tokenizer.encode(text), *ends[1:]]
        hidden = ours.model(read.input_ids)
        expected = ours.head(hidden[0]) if causal else ours.head.decoder(ours.head(hidden))
        assert (expected - theirs(**read).logits).abs().max() < 1e-5 and expected.abs().max() > 0.1


@torch.no_grad()
@pytest.mark.parametrize("name", ["gpt, rotary", "gpt, rotary, own softmax"])
def test_greedy_text_is_equal(name, tmp_path):
    ours, tokenizer = system(name)
    theirs, _ = opened(transformers.AutoModelForCausalLM, exported(ours, tokenizer, tmp_path))
    model = next_token(NeuralLM(ours, SlidingWindow(12, None, 1), tokenizer.boundary))
    written = set()
    for text in TEXTS:
        prompt = [tokenizer.boundary, *tokenizer.encode(text)[:4]]
        ((completion,),) = Greedy(7)(model, [prompt], None)
        read = torch.tensor([prompt])
        settings = {"do_sample": False, "max_new_tokens": 7, "eos_token_id": None}
        its = theirs.generate(read, attention_mask=torch.ones_like(read), **settings)
        assert its[0, len(prompt) :].tolist() == completion.ids
        written |= {*completion.ids}
    assert len(written) > 3


BACKBONES = [
    (name, pooling) for name in ("bert", "bert, rotary", "electra") for pooling in (None, "mean", "max", "token")
]
BACKBONES += [(name, pooling) for name in ("gpt2", "gpt, rotary") for pooling in (None, "mean", "max")]


@torch.no_grad()
@pytest.mark.parametrize("kind", [Classification, Regression])
@pytest.mark.parametrize(("name", "pooling"), BACKBONES)
def test_every_pooling_on_every_backbone(name, pooling, kind, tmp_path):
    pretrained, tokenizer = system(name)
    sizes = (3,) if kind is Classification else (1.0, 5.0)
    torch.manual_seed(1)
    ours = widened(kind(pretrained.model, *sizes, dropout=0.1, pooling=pooling)).eval()
    theirs, _ = opened(CLASSES, exported(ours, tokenizer, tmp_path))
    if type(theirs).__name__ == "PooledForSequenceClassification":  # its code is a copy of this class
        theirs, _ = opened(PooledForSequenceClassification, tmp_path)
    lengths = torch.tensor([9, 4, 6])
    real = torch.arange(9) < lengths[:, None]
    read = torch.randint(4, tokenizer.vocab_size, (3, 9), generator=torch.Generator().manual_seed(1)) * real
    labels = torch.tensor([1, 0, 2])
    expected = ours(ExampleBatch(read, lengths, labels))
    its = theirs(read, attention_mask=real.long(), labels=labels)
    assert (expected - its.logits.view_as(expected)).abs().max() < 1e-5
    loss = ours.loss(ExampleBatch(read, lengths, labels), None, 0)[0] * (16 if kind is Regression else 1)
    assert loss == pytest.approx(float(its.loss), rel=1e-4)
    if pooling not in (None, "token") and name == "gpt, rotary":  # padding on the left
        left = [row.roll(9 - length) for row, length in zip(read, lengths.tolist(), strict=True)]
        mask = real.flip(1).long()
        places = (mask.cumsum(1) - 1).clip(min=0)
        again = theirs(torch.stack(left), attention_mask=mask, position_ids=places).logits
        assert (again - its.logits).abs().max() < 1e-5


def test_without_trust_nothing_is_run_and_nothing_else_is_loaded(tmp_path, monkeypatch):
    place = next(place for place in EXPORTING if place.startswith("finetune"))
    made(place, tmp_path)
    monkeypatch.setattr("builtins.input", lambda *_: "n")
    with pytest.raises(ValueError, match="trust_remote_code"):
        CLASSES.from_pretrained(tmp_path)
    with pytest.raises(UsageError, match="model_type=retable_pooled, but only gpt2, starcoder2"):
        Checkpoint(str(tmp_path))
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    code = card.partition("```python\n")[2].partition("```")[0].replace("FOLDER", str(tmp_path))
    names: dict = {}
    exec(code, names)
    assert type(names["model"]).__name__ == "PooledForSequenceClassification"
