"""Both ways between our systems and transformers': hidden states of all layers, logits, losses and token ids."""

import pytest
import torch
from hydra.utils import get_class

from retable.data.masking import MaskedBatch
from retable.data.pairs import PairBatch
from retable.exchange.checkpoint import Checkpoint
from tests.exchange.cases import SYSTEMS, L, exported, system

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
LENGTHS = torch.tensor([9, 4, 6])
REAL = torch.arange(9) < LENGTHS[:, None]


def ids(vocab_size: int) -> torch.Tensor:
    drawn = torch.randint(4, vocab_size, (3, 9), generator=torch.Generator().manual_seed(1))
    return drawn * REAL


def loaded(folder, kind: str | None = None):
    """The model of the class that config.json names, all of whose weights were there."""
    kind = kind or transformers.AutoConfig.from_pretrained(folder).architectures[0]
    model, info = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model.eval()


def ours_of(checkpoint: Checkpoint):
    """Our objective on our model, with the weights of a checkpoint."""
    said = dict(checkpoint.model)
    model = get_class(said.pop("_target_"))(**said)
    said = dict(checkpoint.objective)
    kind = get_class(said.pop("_target_"))
    more = {"reduction": "mean"} if "bias" in said else {}
    if kind.__name__ == "ReplacedTokenDetection":
        more["generator"] = lambda vocab_size: model
    objective = kind(model, model.embedding.num_embeddings, **said, **more)
    missing, unexpected = objective.load_state_dict(checkpoint.weights, strict=False)
    assert not unexpected
    tied = ("head.weight", "head.decoder.weight")
    assert not [name for name in missing if name not in tied and not name.startswith("generator")]
    return objective.eval()


@torch.no_grad()
def same(ours, theirs) -> None:
    """All hidden states, logits and losses."""
    kind, V = type(ours).__name__, ours.model.embedding.num_embeddings
    read, mask = ids(V), REAL.long()
    if kind == "CausalLM":
        labels = read.masked_fill(~REAL, -100)
        its = theirs(read, attention_mask=mask, labels=labels, output_hidden_states=True)
        hidden = ours.model(read)[0]
        close(hidden[REAL], its.hidden_states[-1][REAL])
        close(torch.log_softmax(its.logits, 2)[REAL], torch.log_softmax(ours.head(hidden), 2)[REAL])
        close(ours.head(hidden)[REAL], its.logits[REAL])
        predicted = REAL[:, 1:]
        close(-ours.log_prob(read[:, :-1], read[:, 1:])[0][predicted].mean(), its.loss)
        embedded, found = ours.model.embedding(read) + ours.model.positions.weight[:9], []
        for block in ours.model.blocks:
            found.append(embedded)
            embedded = block(embedded)[0]
        for state, expected in zip(found, its.hidden_states, strict=False):
            close(state[REAL], expected[REAL])
    elif kind == "TextToText":
        labels, sizes = ids(V).flip(0), LENGTHS.flip(0)
        real = torch.arange(9) < sizes[:, None]
        before = torch.cat([torch.zeros(3, 1, dtype=torch.long), labels[:, :-1]], 1)
        batch = PairBatch(read, LENGTHS, before, sizes, labels)
        its = theirs(read, mask, labels=labels.masked_fill(~real, -100), output_hidden_states=True)
        close(ours.model.memory(read, LENGTHS)[REAL], its.encoder_last_hidden_state[REAL])
        hidden = ours.decoded(batch)
        close(hidden[real], its.decoder_hidden_states[-1][real])
        close(ours.scores(hidden.flatten(0, 1)).view(3, 9, -1)[real], its.logits[real])
        close(ours.loss(batch, None, 0)[0], its.loss)
    else:
        segments = (torch.arange(9) > 2).long().expand(3, 9) * REAL
        states = ours.model.layers(read, LENGTHS, segments)
        its = theirs(read, attention_mask=mask, token_type_ids=segments, output_hidden_states=True)
        assert len(states) == len(its.hidden_states) == L + 1
        for state, expected in zip(states, its.hidden_states, strict=True):
            close(state[REAL], expected[REAL])
        if kind == "ReplacedTokenDetection":
            close(ours.judge(states[-1])[REAL], its.logits[REAL])
            return
        logits = ours.head.decoder(ours.head(states[-1]))
        close(logits[REAL], (its.logits if "logits" in its else its.prediction_logits)[REAL])
        places = torch.tensor([1, 3, 10, 20])
        labels, is_next = read.flatten()[places], torch.tensor([1, 0, 1])
        batch = MaskedBatch(read, segments, LENGTHS, places, labels, is_next, torch.zeros(4), 1.0, 1.0)
        asked = torch.full((3, 9), -100)
        asked.view(-1)[places] = labels
        pairs = {"next_sentence_label": is_next} if ours.next_sentence is not None else {}
        loss = theirs(read, attention_mask=mask, token_type_ids=segments, labels=asked, **pairs).loss
        close(ours.loss(batch, None, 0)[0], loss)


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert (ours - theirs).abs().max() < 1e-5


@pytest.mark.parametrize("name", SYSTEMS)
def test_ours_exported(name, tmp_path):
    ours, tokenizer = system(name)
    same(ours, loaded(exported(ours, tokenizer, tmp_path)))


@pytest.mark.parametrize("name", SYSTEMS)
def test_ours_exported_and_read_again_is_the_same_to_the_bit(name, tmp_path):
    ours, tokenizer = system(name)
    checkpoint = Checkpoint(str(exported(ours, tokenizer, tmp_path)))
    weights, again = dict(ours.named_parameters()), checkpoint.weights
    left = {key for key in weights if key not in again}
    assert all(key.startswith("generator") for key in left)
    assert all(torch.equal(weights[key], weight) for key, weight in again.items())
    assert checkpoint.tokenizer.encode_batch(["the cat sees\n", "a bird"]) == tokenizer.encode_batch(
        ["the cat sees\n", "a bird"]
    )


COMMON = {"vocab_size": 40, "num_hidden_layers": L, "num_attention_heads": 4}
BERTISH = COMMON | {"hidden_size": 16, "intermediate_size": 64, "max_position_embeddings": 12}
GPT2 = COMMON | {"hidden_size": 16, "max_position_embeddings": 12, "bos_token_id": 0, "eos_token_id": 0}
T5 = {
    "vocab_size": 40,
    "decoder_start_token_id": 0,
    "d_model": 16,
    "d_kv": 5,
    "d_ff": 24,
    "num_layers": L,
    "num_heads": 4,
}
THEIRS = {
    "GPT2LMHeadModel": ("GPT2Config", GPT2),
    "GPT2LMHeadModel, own softmax": ("GPT2Config", GPT2 | {"tie_word_embeddings": False}),
    "BertForPreTraining": ("BertConfig", BERTISH),
    "BertForMaskedLM": ("BertConfig", BERTISH),
    "ElectraForPreTraining": ("ElectraConfig", BERTISH | {"embedding_size": 8}),
    "ElectraForMaskedLM": ("ElectraConfig", BERTISH | {"embedding_size": 8}),
    "T5ForConditionalGeneration": ("T5Config", T5),
    "T5ForConditionalGeneration, 1.1": (
        "T5Config",
        T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
}


def made_by_transformers(name: str, folder):
    config, settings = THEIRS[name]
    torch.manual_seed(3)
    model = getattr(transformers, name.partition(",")[0])(getattr(transformers, config)(**settings)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.1, std=0.3)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("name", THEIRS)
def test_theirs_read(name, tmp_path):
    theirs = made_by_transformers(name, tmp_path)
    same(ours_of(Checkpoint(str(tmp_path))), theirs)
