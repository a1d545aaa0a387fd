"""Test a GPT with separate start, delimiter and extract tokens against transformers' GPT with as many additional
rows.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from pipelines.app.init_from import freeze, load_pretrained
from retable.core.errors import UsageError
from retable.data.choices import Choices
from retable.data.choices import encoded as encoded_choices
from retable.data.examples import encoded
from retable.exchange.families import weights_in_transformers
from retable.models.gpt import GPT
from retable.models.gpt_special_tokens import GPTWithSpecialTokens
from retable.objectives.classification import Classification
from retable.objectives.multiple_choice import MultipleChoice
from retable.tasks.reading import pack
from retable.tokenizers import byte_bpe, character, word, wordpiece

transformers = pytest.importorskip("transformers")

TEXT = ["the cat sees a bird", "a bird sees the cat", "it sees it"]
TOKENIZERS = {
    "words": word.train(TEXT),
    "pieces": wordpiece.train(TEXT, 40, lowercase=True, alphabet=30),
    "bytes": byte_bpe.train(TEXT, 270),
    "characters": character.train(TEXT),
}
WORDS = TOKENIZERS["words"]
V = WORDS.vocab_size
SIZES = {"d_model": 16, "n_layers": 2, "n_heads": 2, "max_length": 24, "dropout": 0.0}
PAIRS = [("the cat sees", "it sees"), ("a bird", "the cat sees it"), ("it", "it")]


def marked(vocab_size: int = V, **settings) -> GPTWithSpecialTokens:
    torch.manual_seed(0)
    return GPTWithSpecialTokens(vocab_size, **(SIZES | settings)).eval()


def pretrained(**settings) -> GPT:
    torch.manual_seed(1)
    return GPT(V, **(SIZES | settings)).eval()


def begun(**settings) -> tuple[GPTWithSpecialTokens, GPT]:
    """Return an objective with the weights of a pretrained GPT, and this GPT."""
    given, theirs = marked(**settings), pretrained(**settings)
    load_pretrained(given, given, {f"model.{name}": weight for name, weight in theirs.named_parameters()}, Path("file"))
    return given, theirs


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_pair_stands_between_tokens_that_the_tokenizer_lacks(name):
    tokenizer = TOKENIZERS[name]
    size = tokenizer.vocab_size
    first, second = (tokenizer.encode(text) for text in PAIRS[0])
    assert {*first, *second} < {*range(size)}
    model = marked(size, max_length=64)
    inputs = pack(model, tokenizer, PAIRS[:1], symmetric=True)
    assert inputs.sequences == [[size, *first, size + 1, *second, size + 2]]
    assert inputs.others == [[size, *second, size + 1, *first, size + 2]]
    assert pack(model, tokenizer, [("it",)], False).sequences == [[size, *tokenizer.encode("it"), size + 2]]
    assert model.input_embedding.num_embeddings == size + 3


@pytest.mark.parametrize("settings", [{}, {"positions": "rotary"}, {"norm": "post", "bias": False}])
def test_it_begins_as_the_pretrained_gpt_and_with_its_own_embeddings(settings):
    given, theirs = begun(**settings)
    fresh = marked(**settings)
    assert torch.equal(given.embedding.weight[:V], theirs.embedding.weight)
    assert torch.equal(given.embedding.weight[V:], fresh.embedding.weight[V:])
    assert fresh.embedding.weight[V:].std().item() == pytest.approx(0.02, rel=0.3)  # as of all initial weights
    for name, weight in theirs.named_parameters():
        assert name == "embedding.weight" or torch.equal(dict(given.named_parameters())[name], weight)
    input_ids = torch.tensor([WORDS.encode("the cat sees a bird")])
    assert torch.equal(given(input_ids)[0], theirs(input_ids)[0])


def test_weights_of_another_gpt_are_refused():
    weights = {f"model.{name}": weight for name, weight in pretrained().named_parameters()}
    for other in ({"positions": "rotary"}, {"n_layers": 1}, {"d_model": 8}):
        given = marked(**other)
        with pytest.raises(UsageError, match="file has weights that do not fit the model PretrainedGPT as configured"):
            load_pretrained(given, given, weights, Path("file"))
    with pytest.raises(UsageError, match=r"only parts of GPTWithSpecialTokens are pretrained.*remove frozen=true$"):
        freeze(marked())


def resized(kind: str, given: GPTWithSpecialTokens, theirs: GPT, **settings) -> nn.Module:
    """Return transformers' model with a pretrained GPT's weights, and with our weights in the three additional rows."""
    kind = getattr(transformers, kind)
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 24, "pad_token_id": 0}
    its = kind(kind.config_class(vocab_size=V, **sizes, **settings)).eval()
    its.transformer.load_state_dict(weights_in_transformers(theirs))
    its.resize_token_embeddings(V + 3)
    with torch.no_grad():
        its.get_input_embeddings().weight[V:] = given.embedding.weight[V:]
    return its


def test_transformers_classifier_gives_the_same_logits():
    """GPT2ForSequenceClassification reads the last token that is not padding."""
    given, theirs = begun()
    objective = Classification(given, 3, 0.0, pairs=True).eval()
    with torch.no_grad():
        objective.head.bias.zero_()  # transformers' head has no bias
    its = resized("GPT2ForSequenceClassification", given, theirs, num_labels=3)
    its.score.weight = objective.head.weight
    inputs = pack(given, WORDS, PAIRS, symmetric=False)
    batch = encoded(inputs, [0, 1, 2]).pad(np.arange(3))
    inside = torch.arange(batch.input_ids.shape[1]) < batch.lengths[:, None]
    logits = its(batch.input_ids, attention_mask=inside.long()).logits
    torch.testing.assert_close(objective(batch), logits, atol=1e-5, rtol=1e-5)

    both = encoded(pack(given, WORDS, PAIRS, symmetric=True), [0, 1, 2]).pad(np.arange(3))
    turned = encoded(pack(given, WORDS, [pair[::-1] for pair in PAIRS], False), [0, 1, 2]).pad(np.arange(3))
    inside = torch.arange(turned.input_ids.shape[1]) < turned.lengths[:, None]
    torch.testing.assert_close(
        objective(both), logits + its(turned.input_ids, attention_mask=inside.long()).logits, atol=1e-5, rtol=1e-5
    )


def assert_same_scores_and_next_tokens(given: GPTWithSpecialTokens, its: nn.Module) -> None:
    """Compare double heads: the softmax is over all tokens, including special ones, and the score reads the last
    token.
    """
    objective = MultipleChoice(given, 0.0, auxiliary=0.5).eval()
    with torch.no_grad():
        its.multiple_choice_head.summary.weight.copy_(objective.head.weight)
        its.multiple_choice_head.summary.bias.zero_()
    inputs = pack(given, WORDS, PAIRS[:2], symmetric=False)
    batch = encoded_choices(Choices(inputs, np.array([2]), [1])).pad(np.arange(1))
    rows = batch.rows
    found = its(rows.input_ids[None], mc_token_ids=rows.lengths[None] - 1)
    torch.testing.assert_close(objective(batch), found.mc_logits, atol=1e-5, rtol=1e-5)
    nats = []
    for logits, tokens, length in zip(found.logits[0], rows.input_ids, rows.lengths, strict=True):
        assert logits.shape[1] == V + 3
        nats.append(nn.functional.cross_entropy(logits[: length - 1], tokens[1:length]))
    loss, metrics, _ = objective.loss(batch, None, 0)
    torch.testing.assert_close(metrics["auxiliary_loss"], torch.stack(nats).mean(), atol=1e-5, rtol=1e-5)
    right = -found.mc_logits[0].log_softmax(0)[1]
    torch.testing.assert_close(loss, right + 0.5 * torch.stack(nats).mean(), atol=1e-5, rtol=1e-5)


def test_transformers_double_heads_give_the_same_scores_and_next_tokens():
    given, theirs = begun()
    its = resized("GPT2DoubleHeadsModel", given, theirs, summary_first_dropout=0.0)
    assert_same_scores_and_next_tokens(given, its)


def test_the_first_gpt_of_transformers_gives_the_same_next_tokens_and_scores():
    """Compared with OpenAIGPTDoubleHeadsModel, whose LayerNorm is after the residual connections."""
    given, _ = begun(norm="post")
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 24, "afn": "gelu", "summary_first_dropout": 0.0}
    its = transformers.OpenAIGPTDoubleHeadsModel(transformers.OpenAIGPTConfig(vocab_size=V, **sizes)).eval()
    its.resize_token_embeddings(V + 3)
    names = {
        "attention.query_key_value": "attn.c_attn", "attention.output": "attn.c_proj", "attention_norm": "ln_1",
        "expand": "mlp.c_fc", "contract": "mlp.c_proj", "feed_forward_norm": "ln_2",
    }  # fmt: skip
    weights = dict(given.named_parameters())
    state = {"tokens_embed.weight": weights["embedding.weight"], "positions_embed.weight": weights["positions.weight"]}
    for layer in range(2):
        for our, their in names.items():
            weight = weights[f"blocks.{layer}.{our}.weight"]
            state[f"h.{layer}.{their}.weight"] = weight if "norm" in our else weight.T
            state[f"h.{layer}.{their}.bias"] = weights[f"blocks.{layer}.{our}.bias"]
    its.transformer.load_state_dict(state)
    its.tie_weights()
    assert_same_scores_and_next_tokens(given, its)


@pytest.mark.parametrize("auxiliary", [0.0, 0.5])
def test_the_embeddings_of_its_own_tokens_learn(auxiliary):
    """Start and delimiter learn through attention, and extract where the label is read.

    With an auxiliary language model, they also learn as predicted tokens.
    """
    given, _ = begun()
    objective = Classification(given.train(), 3, 0.0, auxiliary=auxiliary, pairs=True)
    batch = encoded(pack(given, WORDS, PAIRS, symmetric=True), [0, 1, 2]).pad(np.arange(3))
    objective.loss(batch, None, 0)[0].backward()
    gradient = given.embedding.weight.grad
    assert (gradient[V:].abs().sum(dim=1) > 0).all()
    unread = [i for i in range(V) if i not in batch.input_ids]
    assert bool(gradient[unread].abs().sum() > 0) == (auxiliary > 0)  # only the auxiliary softmax reaches them
