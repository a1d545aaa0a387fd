import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForMultipleChoice

from retable.core.errors import UsageError
from retable.data.choices import ChoiceBatch, Choices, pad_choices
from retable.data.examples import Inputs
from retable.exchange.families import weights_in_transformers
from retable.models.bag_of_words import BagOfWords, DeepAveraging
from retable.models.bert import BERT
from retable.models.bilstm import BiLSTM
from retable.models.bilstm_attention import BiLSTMAttention
from retable.models.elmo import ELMo
from retable.models.elmo_features import ELMoBiLSTM
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.models.t5 import T5, OneStackT5
from retable.models.t5_encoder import T5Encoder
from retable.objectives.causal_lm import CausalLM
from retable.objectives.multiple_choice import MultipleChoice, by_example
from retable.training.weights import load_weights, save_weights

V, D = 11, 8
WORDS = [f"w{i}" for i in range(V)]
ELMO = partial(ELMo, d_model=4, d_cell=6, n_layers=2, dropout=0.0, filters=None)
T5_SIZES = {"vocab_size": V, "d_model": D, "n_layers": 1, "n_heads": 2, "d_ff": 12, "dropout": 0.0}
MODELS = {
    "bert": lambda: BERT(V, D, 2, 2, max_length=12, dropout=0.0),
    "gpt": lambda: GPT(V, D, 2, 2, max_length=12, dropout=0.0),
    "lstm": lambda: LSTM(V, D, 1, 0.0, init_range=0.5),
    "prefix_lm": lambda: OneStackT5(**T5_SIZES),
    "bilstm": lambda: BiLSTM(V, 6, D, 1, 0.0),
    "bilstm_attention": lambda: BiLSTMAttention(V, 6, D, 1),
    "bag_of_words": lambda: BagOfWords(V, 0.0),
    "deep_averaging": lambda: DeepAveraging(V, D, 2, 0.0),
    "elmo": lambda: ELMoBiLSTM(WORDS, ELMO, 6, D, 1, 0.0, frozen=False),
    "t5_encoder": lambda: T5Encoder(**T5_SIZES),
}
LEFT_TO_RIGHT = ["gpt", "lstm", "prefix_lm"]
TOGETHER = ["bert", *LEFT_TO_RIGHT]
CASES = [(name, 0.0) for name in MODELS] + [(name, 0.5) for name in LEFT_TO_RIGHT]
N_ENDINGS = [2, 4, 3]
LABELS = [1, 3, 0]


def choices(name: str) -> Choices:
    """Three examples with 2, 4 and 3 endings of 1 to 4 words, as the model reads a pair."""
    generator = torch.Generator().manual_seed(1)

    def words(n: int) -> list[int]:
        return torch.randint(1, V, (n,), generator=generator).tolist()

    beginnings = [words(n) for n in (3, 5, 2)]
    pairs = [(beginning, words(1 + k)) for beginning, n in zip(beginnings, N_ENDINGS, strict=True) for k in range(n)]
    if name in TOGETHER:
        segments = [len(first) + 1 for first, _ in pairs] if name == "bert" else None
        inputs = Inputs([[*first, 0, *second, 0] for first, second in pairs], segments=segments)
    else:
        inputs = Inputs(*map(list, zip(*pairs, strict=True)))
    return Choices(inputs, np.array(N_ENDINGS), LABELS)


def batch(name: str, places=(0, 1, 2)) -> ChoiceBatch:
    return pad_choices(choices(name), np.array(places))


def choosing(name: str, **settings) -> MultipleChoice:
    torch.manual_seed(0)
    objective = MultipleChoice(MODELS[name](), dropout=0.0, **settings)
    for parameter in objective.head.parameters():
        nn.init.normal_(parameter)  # a bag of words begins at 0
    return objective


def test_scores_stand_by_example():
    found = by_example(torch.arange(6.0), torch.tensor([2, 1, 3]))
    assert found.tolist() == [[0.0, 1.0, -math.inf], [2.0, -math.inf, -math.inf], [3.0, 4.0, 5.0]]
    assert by_example(torch.zeros(2, dtype=torch.bfloat16), torch.tensor([2])).dtype == torch.float32


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_is_that_of_a_softmax_over_the_endings_of_each_example(name):
    objective = choosing(name)
    scores = objective(batch(name))
    assert scores.shape == (3, 4) and torch.isfinite(scores).sum(dim=1).tolist() == N_ENDINGS
    rows = [row[:n] for row, n in zip(scores, N_ENDINGS, strict=True)]
    log_probs = [row.softmax(0)[label].log() for row, label in zip(rows, LABELS, strict=True)]
    loss, metrics, state = objective.loss(batch(name), None, step=0)
    torch.testing.assert_close(loss, -torch.stack(log_probs).mean())
    assert metrics == {"loss": loss.detach()} and state is None
    assert objective.predict(batch(name)).tolist() == [int(row.argmax()) for row in rows]


@pytest.mark.parametrize(("name", "auxiliary"), CASES)
def test_neither_padding_nor_the_examples_beside_it_change_an_example(name, auxiliary):
    objective = choosing(name, auxiliary=auxiliary).eval()
    scores, losses = objective(batch(name)), []
    for place, n in enumerate(N_ENDINGS):
        alone = batch(name, [place])
        torch.testing.assert_close(objective(alone)[0], scores[place, :n])
        losses.append(objective.loss(alone, None, 0)[1])
    _, metrics, _ = objective.loss(batch(name), None, 0)
    torch.testing.assert_close(metrics["loss"], torch.stack([each["loss"] for each in losses]).mean())
    if auxiliary:  # a mean over rows
        means = [n * each["auxiliary_loss"] for n, each in zip(N_ENDINGS, losses, strict=True)]
        torch.testing.assert_close(metrics["auxiliary_loss"], sum(means) / sum(N_ENDINGS))


@pytest.mark.parametrize(("name", "auxiliary"), CASES)
def test_the_loss_reaches_every_parameter(name, auxiliary):
    objective = choosing(name, auxiliary=auxiliary)
    objective.loss(batch(name), None, step=0)[0].backward()
    reached = {name: p.grad is not None and bool(p.grad.any()) for name, p in objective.named_parameters()}
    assert all(reached.values()), reached
    assert "head.bias" not in reached


@pytest.mark.parametrize(("name", "auxiliary"), [("bert", 0.0), ("gpt", 0.5)])
def test_the_loss_is_times_the_batchs_weight(name, auxiliary):
    objective, given = choosing(name, auxiliary=auxiliary), batch(name)
    whole, metrics, _ = objective.loss(given, None, 0)
    half, halved, _ = objective.loss(given._replace(weight=0.5, rows=given.rows._replace(weight=0.25)), None, 0)
    assert halved["loss"].item() == pytest.approx(metrics["loss"].item() / 2)
    if auxiliary:
        assert halved["auxiliary_loss"].item() == pytest.approx(metrics["auxiliary_loss"].item() / 4)
    assert half.item() < whole.item()


def test_bert_equals_that_of_transformers():
    """Scores, loss and the gradient of the pooler, with the same weights; its bias moves no softmax."""
    ours, given = choosing("bert"), batch("bert", [1])
    for parameter in ours.parameters():
        nn.init.normal_(parameter, std=0.3)
    settings = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    sizes = {"vocab_size": V, "hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": 2}
    theirs = BertForMultipleChoice(BertConfig(**sizes, intermediate_size=4 * D, max_position_embeddings=12, **settings))
    weights = {f"bert.{name}": weight for name, weight in weights_in_transformers(ours.model).items()}
    theirs.load_state_dict(weights | {"classifier.weight": ours.head.weight}, strict=False)
    nn.init.zeros_(theirs.classifier.bias)
    rows = given.rows
    mask = (torch.arange(rows.input_ids.shape[1]) < rows.lengths[:, None]).long()
    expected = theirs(
        rows.input_ids[None], attention_mask=mask[None], token_type_ids=rows.segments[None], labels=given.labels
    )
    torch.testing.assert_close(ours(given), expected.logits, atol=1e-5, rtol=0)
    loss, _, _ = ours.loss(given, None, step=0)
    torch.testing.assert_close(loss, expected.loss, atol=1e-5, rtol=0)
    loss.backward()
    expected.loss.backward()
    pooler = theirs.bert.pooler.dense.weight
    torch.testing.assert_close(ours.model.pooler.weight.grad, pooler.grad, atol=1e-5, rtol=1e-4)


def test_the_auxiliary_loss_is_that_of_a_language_model_of_all_endings():
    objective, given = choosing("gpt", auxiliary=0.7), batch("gpt")
    language_model = CausalLM(objective.model, V, tie=True, bias=False, reduction="mean")
    nats = []
    for row, length in zip(given.rows.input_ids, given.rows.lengths, strict=True):
        log_prob, _ = language_model.log_prob(row[None, : length - 1], row[None, 1:length])
        nats.append(-log_prob.mean())
    loss, metrics, _ = objective.loss(given, None, step=0)
    torch.testing.assert_close(metrics["auxiliary_loss"], torch.stack(nats).mean().detach())
    torch.testing.assert_close(loss, metrics["loss"] + 0.7 * torch.stack(nats).mean())


def test_what_is_saved_gives_the_same_scores(tmp_path):
    trained, other = choosing("bilstm", d_hidden=5), choosing("bilstm", d_hidden=5)
    nn.init.normal_(other.head[0].weight)
    assert trained.head[-1].bias is None and trained.head[0].bias is not None
    save_weights(trained, tmp_path / "model.safetensors")
    load_weights(other, tmp_path / "model.safetensors")
    assert torch.equal(trained(batch("bilstm")), other(batch("bilstm")))


def test_it_learns_which_ending_repeats_the_beginnings_word():
    generator = torch.Generator().manual_seed(3)
    pairs, labels = [], []
    for place in range(18):
        words = (1 + torch.randperm(V - 1, generator=generator)).tolist()
        labels.append(place % 3)
        endings = words[1:4]
        endings[labels[-1]] = words[0]
        pairs += [([words[0]], [ending]) for ending in endings]
    inputs = Inputs(*map(list, zip(*pairs, strict=True)))
    given = pad_choices(Choices(inputs, np.full(18, 3), labels), np.arange(18))
    objective = choosing("bilstm")
    optimizer = torch.optim.Adam(objective.parameters(), lr=0.03)
    for _ in range(40):
        optimizer.zero_grad()
        objective.loss(given, None, 0)[0].backward()
        optimizer.step()
    assert torch.equal(objective.predict(given), given.labels)


def test_models_without_a_state_to_score_by_are_refused():
    with pytest.raises(UsageError, match=r"T5 writes text, and has no state to tell a label by; .* bert/bert"):
        MultipleChoice(T5(**T5_SIZES), dropout=0.0)
    with pytest.raises(UsageError, match=r"ELMo gives features.*take recipe=encoders/bilstm_elmo"):
        MultipleChoice(ELMO(words=WORDS), dropout=0.0)
    with pytest.raises(UsageError, match=r"has seen the tokens that auxiliary=0\.5 asks it to predict"):
        choosing("bert", auxiliary=0.5)
