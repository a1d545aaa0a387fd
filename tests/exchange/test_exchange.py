"""Test both directions between our systems and transformers': hidden states, logits, losses and token ids."""

import json
from functools import partial
from unittest.mock import Mock

import pytest
import torch
from huggingface_hub import ModelCard, ModelCardData
from hydra.utils import get_class
from safetensors.torch import load_file, save_file

from retable.core.errors import UsageError
from retable.data.choices import ChoiceBatch
from retable.data.examples import ExampleBatch
from retable.data.masking import MaskedBatch
from retable.data.pairs import PairBatch
from retable.data.questions import PassageBatch
from retable.data.tagged import TaggedBatch
from retable.exchange.card import Card, Result
from retable.exchange.checkpoint import Checkpoint
from retable.exchange.export import export
from retable.exchange.families import FAMILIES, counterpart, settings_of
from retable.inference.build import build_model, build_objective
from retable.models.gpt_special_tokens import GPTWithSpecialTokens
from retable.models.recurrent import LSTM
from retable.objectives.adaptive_softmax import AdaptiveSoftmax
from retable.objectives.answer_as_text import LONGEST, AnswerAsText
from retable.objectives.answer_span import AnswerSpan
from retable.objectives.causal_lm import CausalLM
from retable.objectives.classification import Classification
from retable.objectives.labels_as_text import LabelsAsText
from retable.objectives.masked_lm import MaskedLM
from retable.objectives.multiple_choice import MultipleChoice
from retable.objectives.regression import Regression
from retable.objectives.summary_as_text import SummaryAsText
from retable.objectives.tagging import Tagging
from retable.tokenizers import word
from tests.exchange.cases import SYSTEMS, D, L, bert, bpe, electra, exported, gpt, pieces, system, t5, unigrams, widened
from tests.pipelines.recipes import composed

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
LENGTHS = torch.tensor([9, 4, 6])
TEXTS = ["the cat sees a bird", "it sees it , no", "a bird had"]
REAL = torch.arange(9) < LENGTHS[:, None]


def ids(vocab_size: int) -> torch.Tensor:
    drawn = torch.randint(4, vocab_size, (3, 9), generator=torch.Generator().manual_seed(1))
    return drawn * REAL


def loaded(folder, kind: str | None = None):
    """Return the model of the class that config.json names, after a check that the file has all its weights."""
    kind = kind or transformers.AutoConfig.from_pretrained(folder).architectures[0]
    model, info = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model.eval()


def ours_of(checkpoint: Checkpoint):
    """Return our objective and model with the weights of a checkpoint."""
    settings = dict(checkpoint.model)
    model = get_class(settings.pop("_target_"))(**settings)
    settings = dict(checkpoint.objective)
    kind = get_class(settings.pop("_target_"))
    more = {"reduction": "mean"} if "bias" in settings else {}
    if kind.__name__ == "ReplacedTokenDetection":
        more["generator"] = lambda vocab_size: model
    objective = kind(model, model.embedding.num_embeddings, **settings, **more)
    missing, unexpected = objective.load_state_dict(checkpoint.weights, strict=False)
    assert not unexpected
    tied = ("head.weight", "head.decoder.weight")
    assert not [name for name in missing if name not in tied and not name.startswith("generator")]
    return objective.eval()


@torch.no_grad()
def same(ours, theirs) -> None:
    """Check that all hidden states, logits and losses are equal."""
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
        embedded, turns, inputs = ours.model.embedding(read), ours.model.rotations, []
        embedded = embedded if ours.model.positions is None else embedded + ours.model.positions.weight[:9]
        for block in ours.model.blocks:
            inputs.append(embedded)
            embedded = block(embedded, rotation=None if turns is None else turns[:, :9])[0]
        for state, expected in zip(inputs, its.hidden_states, strict=False):
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
        segments_given = {"token_type_ids": segments}
        if type(theirs).__name__ == "EsmForMaskedLM":  # this model reads only single texts
            segments, segments_given = torch.zeros_like(segments), {}
        states = ours.model.layers(read, LENGTHS, segments)
        its = theirs(read, attention_mask=mask, **segments_given, output_hidden_states=True)
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
        loss = theirs(read, attention_mask=mask, **segments_given, labels=asked, **pairs).loss
        close(ours.loss(batch, None, 0)[0], loss)


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert (ours - theirs).abs().max() < 1e-5


# Weights for which no class of transformers has a place; the logits do not depend on them.
POOLER = {"model.pooler.weight", "model.pooler.bias"}
LEFT = {name: POOLER if name == "bert, rotary" else set() for name in SYSTEMS}


@pytest.mark.parametrize("name", SYSTEMS)
def test_ours_exported_and_read_again_is_the_same_to_the_bit(name, tmp_path):
    ours, tokenizer = system(name)
    checkpoint = Checkpoint(str(exported(ours, tokenizer, tmp_path)))
    same(ours, loaded(tmp_path))
    weights, again = dict(ours.named_parameters()), checkpoint.weights
    if name == "bert, rotary":  # the embeddings contain the segment of a single text
        again = {key: weight for key, weight in again.items() if key in weights and "embedding" not in key}
        assert not checkpoint.weights["model.segments.weight"].any()
        same(ours_of(checkpoint), loaded(tmp_path))
    assert all(key.startswith("generator") for key in weights.keys() - checkpoint.weights.keys() - LEFT[name])
    assert all(torch.equal(weights[key], weight) for key, weight in again.items() if key != "model.segments.weight")
    assert checkpoint.tokenizer.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)
    if name.startswith("electra"):
        the_generator_goes_with_it(ours, tmp_path / "generator", name)


@torch.no_grad()
def the_generator_goes_with_it(ours, its, name: str) -> None:
    alone = loaded(its)
    assert type(alone).__name__ == ("ElectraForMaskedLM" if "wide" in name else "BertForMaskedLM")  # d_embedding
    read = ids(ours.generator.embedding.num_embeddings)
    expected = ours.generator_head.decoder(ours.generator_head(ours.generator(read, LENGTHS)))
    close(expected[REAL], alone(read, attention_mask=REAL.long()).logits[REAL])
    assert ModelCard.load(its / "README.md").data.model_name == "tiny-generator"


COMMON = {"vocab_size": 40, "num_hidden_layers": L, "num_attention_heads": 4}
BERTISH = COMMON | {"hidden_size": 16, "intermediate_size": 64, "max_position_embeddings": 12}
GPT2 = COMMON | {"hidden_size": 16, "max_position_embeddings": 12, "bos_token_id": 0, "eos_token_id": 0}
STARCODER2 = BERTISH | {"num_key_value_heads": 4, "bos_token_id": 0, "eos_token_id": 0}
ESM = BERTISH | {"position_embedding_type": "rotary", "emb_layer_norm_before": True, "pad_token_id": 0}
T5 = {"vocab_size": 40, "decoder_start_token_id": 0, "d_model": 16, "d_kv": 5, "d_ff": 24, "num_layers": L}
T5 |= {"num_heads": 4}
UNTIED = {"tie_word_embeddings": False}
THEIRS = {
    "GPT2LMHeadModel": ("GPT2Config", GPT2),
    "GPT2LMHeadModel, own softmax": ("GPT2Config", GPT2 | UNTIED),
    "Starcoder2ForCausalLM": ("Starcoder2Config", STARCODER2),
    "Starcoder2ForCausalLM, own softmax": ("Starcoder2Config", STARCODER2 | UNTIED),
    "BertForPreTraining": ("BertConfig", BERTISH),
    "BertForMaskedLM": ("BertConfig", BERTISH),
    "EsmForMaskedLM": ("EsmConfig", ESM),
    "EsmForMaskedLM, own softmax": ("EsmConfig", ESM | UNTIED),
    "ElectraForPreTraining": ("ElectraConfig", BERTISH | {"embedding_size": 8}),
    "ElectraForMaskedLM": ("ElectraConfig", BERTISH | {"embedding_size": 8}),
    "T5ForConditionalGeneration": ("T5Config", T5),
    "T5ForConditionalGeneration, 1.1": ("T5Config", T5 | {"feed_forward_proj": "gated-gelu", **UNTIED}),
}


def made_by_transformers(name: str, folder):
    return randomised(name.partition(",")[0], *THEIRS[name], folder)


def randomised(kind: str, config: str, settings: dict, folder):
    torch.manual_seed(3)
    model = getattr(transformers, kind)(getattr(transformers, config)(**settings)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.1, std=0.3)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("name", THEIRS)
def test_theirs_read(name, tmp_path):
    theirs = made_by_transformers(name, tmp_path)
    same(ours_of(Checkpoint(str(tmp_path))), theirs)


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_tokenizer_of_an_export(name, tmp_path):
    ours, tokenizer = system(name)
    theirs = transformers.AutoTokenizer.from_pretrained(exported(ours, tokenizer, tmp_path))
    assert theirs(TEXTS, add_special_tokens=False).input_ids == tokenizer.encode_batch(TEXTS)
    ends = ("[CLS]", "[SEP]") if name.startswith(("bert", "electra")) else ("", "</s>" * name.startswith("t5"))
    first, last = ([tokenizer.words.index(mark)] if mark else [] for mark in ends)
    assert theirs(TEXTS[0]).input_ids == [*first, *tokenizer.encode(TEXTS[0]), *last]
    # The inputs match the model: given segments, GPT-2 would add embeddings of them.
    model = transformers.AutoModel.from_pretrained(tmp_path).eval()
    if not name.startswith("t5"):
        read = theirs(TEXTS[0], return_tensors="pt")
        with torch.no_grad():
            hidden = model(**read).last_hidden_state
            its = ours.model(read.input_ids)
        close(its[0] if name.startswith("gpt") else its, hidden)
    marks = {"pad_token": ("[PAD]", "<pad>"), "unk_token": ("[UNK]", "<unk>"), "mask_token": ("[MASK]",)}
    for role, words in marks.items():
        assert getattr(theirs, role) == next((word for word in words if word in tokenizer.words), None)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    if name.startswith("gpt"):
        assert config.bos_token_id == config.eos_token_id == theirs.eos_token_id == tokenizer.boundary
    else:
        assert config.pad_token_id == theirs.pad_token_id == 0


def test_words_with_marks_read_as_they_did(tmp_path):
    tokenizer = word.train(TEXTS, marks=["[PAD]", "[CLS]", "[SEP]", "[MASK]"])
    ours = bert(tokenizer.vocab_size).eval()
    theirs = transformers.AutoTokenizer.from_pretrained(exported(ours, tokenizer, tmp_path))
    text = "the cat\nunheard of it\n"
    assert theirs(text, add_special_tokens=False).input_ids == tokenizer.encode(text)
    cls, sep, pad = (tokenizer.special_ids[mark] for mark in ("[CLS]", "[SEP]", "[PAD]"))
    pair = theirs("the cat", "a bird")
    assert pair.input_ids == [cls, *tokenizer.encode("the cat"), sep, *tokenizer.encode("a bird"), sep]
    assert pair.token_type_ids == [0, 0, 0, 0, 1, 1, 1]
    assert transformers.AutoConfig.from_pretrained(tmp_path).pad_token_id == pad == theirs.pad_token_id


# Heads of tasks: our objective on a model, and the name in transformers.
HEADS = {
    "BertForSequenceClassification": lambda model, low=0.0: Classification(model, 3, 0.1),
    "EsmForSequenceClassification": lambda model, low=0.0: Classification(model, 3, 0.1),
    "EsmForSequenceClassification, regression": lambda model, low=0.0: Regression(model, low, low + 1, 0.1),
    "EsmForTokenClassification": lambda model, low=0.0: Tagging(model, ["a", "b", "c"], 0.1),
    "GPT2ForTokenClassification": lambda model, low=0.0: Tagging(model, ["a", "b", "c"], 0.1),
    "Starcoder2ForTokenClassification": lambda model, low=0.0: Tagging(model, ["a", "b", "c"], 0.1),
    "BertForSequenceClassification, regression": lambda model, low=0.0: Regression(model, low, low + 1, 0.1),
    "BertForMultipleChoice": lambda model, low=0.0: MultipleChoice(model, 0.1),
    "BertForTokenClassification": lambda model, low=0.0: Tagging(model, ["a", "b", "c"], 0.1),
    "BertForQuestionAnswering": lambda model, low=0.0: AnswerSpan(model, 0.1),
    "ElectraForTokenClassification": lambda model, low=0.0: Tagging(model, ["a", "b", "c"], 0.1),
    "ElectraForQuestionAnswering": lambda model, low=0.0: AnswerSpan(model, 0.1),
}


@torch.no_grad()
def head_the_same(ours, theirs) -> None:
    """Check that a head has the same loss and logits; logits of answers may differ by a constant, which softmax
    ignores.
    """
    read, mask = ids(ours.model.embedding.num_embeddings), REAL.long()
    labels = torch.tensor([1, 0, 2])
    match ours:
        case Regression():
            batch, its = ExampleBatch(read, LENGTHS, labels), theirs(read, mask, labels=labels.float())
            close(ours(batch), its.logits[:, 0])
            close(ours.loss(batch, None, 0)[0] * (ours.high - ours.low) ** 2, its.loss)
        case MultipleChoice():
            rows = ExampleBatch(read, LENGTHS, torch.zeros(3).long())
            batch = ChoiceBatch(rows, torch.tensor([3]), labels[:1])
            its = theirs(read[None], mask[None], labels=labels[:1])
            close(torch.log_softmax(ours(batch), 1), torch.log_softmax(its.logits, 1))
            close(ours.loss(batch, None, 0)[0], its.loss)
        case Classification():
            batch, its = ExampleBatch(read, LENGTHS, labels), theirs(read, mask, labels=labels)
            close(ours(batch), its.logits)
            close(ours.loss(batch, None, 0)[0], its.loss)
        case Tagging():
            places, tags = torch.arange(9).expand(3, 9) * REAL, read % 3
            batch = TaggedBatch(read, LENGTHS, places, LENGTHS, tags)
            its = theirs(read, attention_mask=mask, labels=tags.masked_fill(~REAL, -100))
            close(ours._logits(batch)[1], its.logits[REAL])
            close(ours.loss(batch, None, 0)[0], its.loss)
        case AnswerSpan():  # all tokens are words of the context, because transformers' softmax is over all tokens
            segments = (torch.arange(9) > 2).long().expand(3, 9)
            whole = torch.full((3,), 9)
            places, first, last = torch.arange(9).expand(3, 9), torch.tensor([1, 0, 2]), torch.tensor([3, 0, 8])
            batch = PassageBatch(read, whole, segments, places, places, whole, first, last)
            its = theirs(read, token_type_ids=segments, start_positions=first, end_positions=last)
            for scores, logits in zip(ours(batch), (its.start_logits, its.end_logits), strict=True):
                close(torch.log_softmax(scores, 1), torch.log_softmax(logits, 1))
            close(ours.loss(batch, None, 0)[0] / 2, its.loss)  # the loss of transformers is the mean of both


@pytest.mark.parametrize("name", HEADS)
def test_tasks_heads_exported(name, tmp_path):
    system_of = {"Electra": "electra", "Esm": "bert, rotary", "GPT2": "gpt2", "Starcoder2": "gpt, rotary"}
    backbone = system(next((each for kind, each in system_of.items() if name.startswith(kind)), "bert"))[0].model
    tokenizer = bpe() if name.startswith(("GPT2", "Starcoder2")) else pieces()
    torch.manual_seed(4)
    ours = widened(HEADS[name](backbone, low=2.0)).eval()
    labels = ["bad", "good", "best"] if type(ours) is Classification else None
    export(ours, tokenizer, tmp_path, Card("tiny"), labels=labels)
    theirs = loaded(tmp_path)
    assert type(theirs).__name__ == name.partition(",")[0]
    assert labels is None or theirs.config.id2label == dict(enumerate(labels))
    head_the_same(ours, theirs)


@pytest.mark.parametrize("name", HEADS)
def test_tasks_heads_read(name, tmp_path):
    kind, _, regression = name.partition(", ")
    family = kind.partition("For")[0]
    settings = {"Electra": BERTISH | {"embedding_size": 8}, "Bert": BERTISH, "Esm": ESM, "GPT2": GPT2}
    settings = settings.get(family, STARCODER2)
    settings = settings | ({"num_labels": 1, "problem_type": "regression"} if regression else {})
    settings |= {"num_labels": 3} if "TokenClass" in kind or name.endswith("ForSequenceClassification") else {}
    theirs = randomised(kind, f"{family}Config", settings, tmp_path)
    checkpoint = Checkpoint(str(tmp_path))
    of_model = dict(checkpoint.model)
    ours = HEADS[name](get_class(of_model.pop("_target_"))(**of_model)).eval()
    missing, unexpected = ours.load_state_dict(checkpoint.weights, strict=False)
    assert not missing and not unexpected and checkpoint.objective is None
    head_the_same(ours, theirs)


@torch.no_grad()
def written_by(theirs, read, n: int) -> list[list[int]]:
    """Return n tokens that the model writes greedily."""
    settings = {"do_sample": False, "num_beams": 1, "max_new_tokens": n, "eos_token_id": None}
    return theirs.generate(read, attention_mask=REAL.long(), **settings)[:, 1:].tolist()


@torch.no_grad()
@pytest.mark.parametrize("kind", [LabelsAsText, AnswerAsText, partial(SummaryAsText, longest=LONGEST)])
def test_a_t5_that_writes_labels_answers_or_summaries(kind, tmp_path):
    """Compared are the loss of texts of the same length, and what the model writes."""
    tokenizer = unigrams()
    torch.manual_seed(5)
    model, V = t5(tokenizer.vocab_size).model, tokenizer.vocab_size
    labels = [[*tokenizer.encode(text), tokenizer.words.index("</s>")] for text in ("bird", "the cat")]
    of_labels = (labels, labels.index) if kind is LabelsAsText else (str,)
    ours = widened(kind(model, V, True, *of_labels)).eval()
    theirs, read = loaded(exported(ours, tokenizer, tmp_path)), ids(V)
    drawn = torch.randint(2, V, (3, 4), generator=torch.Generator().manual_seed(1))
    for label, text in enumerate(labels):
        answers = torch.tensor([text] * 3) if kind is LabelsAsText else drawn
        batch = PairBatch(read, LENGTHS, answers.roll(1, 1), torch.full((3,), 4), answers)
        if kind is LabelsAsText:
            batch = ExampleBatch(read, LENGTHS, torch.full((3,), label))
        loss = ours.loss(batch, None, 0)[0] / (len(text) if kind is LabelsAsText else 1)  # transformers: over tokens
        close(loss, theirs(read, attention_mask=REAL.long(), labels=answers).loss)
        if kind is LabelsAsText:
            assert written_by(theirs, read, ours.answers.shape[1]) == ours.write(batch).tolist()
        else:
            assert [str(row) for row in written_by(theirs, read, LONGEST)] == ours.predict(batch)
    weights = Checkpoint(str(tmp_path)).weights
    assert all(torch.equal(weights[name], parameter) for name, parameter in ours.named_parameters())


@pytest.mark.parametrize("kind", ["GPT2Model", "BertModel", "ElectraModel", "T5Model"])
def test_a_model_alone(kind, tmp_path):
    name = {"GPT2Model": "gpt2", "BertModel": "bert", "ElectraModel": "electra", "T5Model": "t5"}[kind]
    ours, tokenizer = system(name)
    theirs = loaded(exported(ours.model, tokenizer, tmp_path))
    assert type(theirs).__name__ == kind
    read = torch.tensor([tokenizer.encode(TEXTS[0])])
    with torch.no_grad():
        if kind == "T5Model":
            states = ours.model(read, torch.tensor([read.shape[1]]), read)
            close(states, theirs(read, decoder_input_ids=read).last_hidden_state)
        else:
            states = ours.model(read)
            close(states[0] if kind == "GPT2Model" else states, theirs(read).last_hidden_state)


@pytest.mark.parametrize("form", ["pickled", "in shards", "gamma and beta", "without prefix", "half precision"])
def test_older_and_other_forms_of_a_checkpoint(form, tmp_path):
    theirs = made_by_transformers("BertForPreTraining", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    if form == "pickled":
        torch.save(weights, tmp_path / "pytorch_model.bin")
    elif form == "in shards":
        theirs.save_pretrained(tmp_path, max_shard_size="20KB")
        assert len([*tmp_path.glob("model-*.safetensors")]) > 1
    elif form == "gamma and beta":
        old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        named = {next((k.replace(new, was) for new, was in old.items() if new in k), k): v for k, v in weights.items()}
        save_file(named, tmp_path / "model.safetensors")
    elif form == "without prefix":
        theirs.bert.save_pretrained(tmp_path)
    else:
        save_file({name: weight.half() for name, weight in weights.items()}, tmp_path / "model.safetensors")
    checkpoint, expected = Checkpoint(str(tmp_path)), dict(theirs.named_parameters())
    (tmp_path / "tokenizer.json").write_text("{}")
    assert all(path.is_file() for path in checkpoint.files)
    assert (checkpoint.objective is None) == (form == "without prefix")
    table, norm = checkpoint.weights["model.embedding.weight"], checkpoint.weights["model.embedding_norm.bias"]
    allowed = 1e-3 if form == "half precision" else 0.0
    assert table.dtype == torch.float32
    assert (table - expected["bert.embeddings.word_embeddings.weight"]).abs().max() <= allowed
    assert (norm - expected["bert.embeddings.LayerNorm.bias"]).abs().max() <= allowed


MODEL = gpt(20).model
REFUSED = [
    (gpt(20, positions="sinusoidal"), "GPT2LMHeadModel of transformers has no model.positions=sinusoidal"),
    (gpt(20, positions="rotary", norm="post"), "Starcoder2ForCausalLM of transformers has no model.norm=post; "),
    (gpt(20, positions="rotary", bias=False), "Starcoder2ForCausalLM .* model.bias=false; .* model.bias=true"),
    (gpt(20, norm="post"), "norm=post; train a system with model.norm=pre"),
    (gpt(20, activation="swiglu"), "activation=swiglu; .* model.activation=gelu"),
    (gpt(20, activation="swish"), "activation=swish; .* model.activation=gelu"),
    (gpt(20, bias=False), "bias=false"),
    (gpt(20, separate_documents=True), "separate_documents=true"),
    (bert(20, norm="pre"), "BertForPreTraining .*model.norm=pre; .* model.norm=post"),
    (bert(20, False, positions="rotary"), "BertForMaskedLM .* model.positions=rotary; .* model.positions=learnt"),
    (bert(20, norm="pre", positions="rotary"), "EsmForMaskedLM .*next_sentence=true; .* objective.next_sentence=false"),
    (
        bert(20, norm="pre", d_embedding=8),
        "BertForPreTraining .* model.norm=pre model.d_embedding=8; .* model.norm=post model.d_embedding=null to export",
    ),
    (bert(20, d_embedding=8), "d_embedding=8; .* model.d_embedding=null"),
    (electra(20, norm="pre"), "ElectraForPreTraining .*norm=pre"),
    (CausalLM(MODEL, 20, True, True, "mean"), "objective.bias=true; .* objective.bias=false"),
    (CausalLM(MODEL, 20, True, False, "mean", 0.1), "objective.projection=0.1"),
    (AdaptiveSoftmax(MODEL, 20, False, True, "mean", [5], 4.0), "GPT with AdaptiveSoftmax"),
    (MaskedLM(bert(20).model, 20, True, tie=False), "objective.tie=false"),
    (Classification(bert(20).model, 2, 0.0, pooling="mean", pairs=True), "Bert.* pooling=mean; .* with pooling=null"),
    (Classification(MODEL, 2, 0.0, pooling="mean", pairs=True), "PooledForSeq.* has no pairs=true; .* pairs=false"),
    (Classification(bert(20).model, 2, 0.0, d_hidden=3), "d_hidden=3"),
    (Tagging(bert(20).model, ["a", "b"], 0.0, crf=True), "crf=true"),
    (Tagging(bert(20).model, ["a", "b"], 0.0, n_features=3), "task.features=true; .* task.features=null"),
    (Classification(GPTWithSpecialTokens(20, D, L, 4, 12, 0.1), 2, 0.0), "no class for GPTWithSpecialTokens"),
    (AnswerSpan(MODEL, 0.1), "GPT with AnswerSpan .* CausalLM, Classification, GPT, Regression, Tagging"),
    (CausalLM(LSTM(20, 8, 1, 0.0, 0.1), 20, False, True, "mean"), "LSTM; export a GPT, BERT,"),
    (gpt(20), "has 270 tokens, but the model has only 20"),
]


@pytest.mark.parametrize(("trained", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_transformers_lacks_is_named(trained, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        exported(trained, bpe() if trained is REFUSED[-1][0] else pieces(), tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(("name", "changed", "message"), [
    ("GPT2LMHeadModel", {"activation_function": "gelu"}, "=gelu, but GPT-2 is only supported with one"),
    ("GPT2LMHeadModel", {"n_inner": 20}, "n_inner=20, but GPT-2 is only supported with n_inner=64"),
    ("GPT2LMHeadModel", {"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon=1e-06, but"),
    ("BertForMaskedLM", {"position_embedding_type": "relative_key"}, "_type=relative_key, but BERT"),
    ("BertForMaskedLM", {"is_decoder": True}, "is_decoder=true, but BERT is only supported with is_decoder=false"),
    ("BertForMaskedLM", {"num_hidden_layers": 3}, r"the weights lack blocks\.2\.\S+ as config\.json describes it"),
    ("BertForMaskedLM", {"vocab_size": 41}, r"the weights lack embedding\.weight as config\.json describes it"),
    ("BertForMaskedLM", {"model_type": "roberta"}, "model_type=roberta, but only gpt2, starcoder2, bert,"),
    ("Starcoder2ForCausalLM", {"num_key_value_heads": 2}, "num_key_value_heads=2, but StarCoder2 is only supported"),
    ("Starcoder2ForCausalLM", {"sliding_window": 4}, "sliding_window=4, but StarCoder2 is only supported with"),
    ("Starcoder2ForCausalLM", {"rope_parameters": {"rope_theta": 5e5}}, "rope_parameters={'rope_theta': 500000.0}"),
    ("EsmForMaskedLM", {"token_dropout": True}, "token_dropout=true, but ESM is only supported"),
    ("EsmForMaskedLM", {"position_embedding_type": "absolute"}, "_type=absolute, but ESM"),
    ("T5ForConditionalGeneration", {"relative_attention_num_buckets": 16}, "num_buckets=16, but T5"),
    ("T5ForConditionalGeneration", {"num_decoder_layers": 5}, "num_decoder_layers=5, but T5"),
    ("T5ForConditionalGeneration", {"feed_forward_proj": "gated-silu"}, "feed_forward_proj=gated-silu, but T5"),
])  # fmt: skip
def test_what_ours_lack_is_named(name, changed, message, tmp_path):
    made_by_transformers(name, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | changed))
    with pytest.raises(UsageError, match=message):
        Checkpoint(str(tmp_path)).weights  # noqa: B018


def test_broken_folders_are_told_in_one_line(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"config\.json cannot be read .*; write a folder that save_pretrained has"):
        Checkpoint(str(tmp_path))
    made_by_transformers("BertForMaskedLM", tmp_path)
    with pytest.raises(UsageError, match=r"has no tokenizer\.json, no vocab\.json with merges\.txt, and no vocab\.txt"):
        Checkpoint(str(tmp_path)).files  # noqa: B018
    (tmp_path / "model.safetensors").write_bytes(b"no")
    with pytest.raises(UsageError, match=r"model\.safetensors is damaged"):
        Checkpoint(str(tmp_path)).weights  # noqa: B018
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UsageError, match="has no weights; it needs one of"):
        Checkpoint(str(tmp_path)).weights  # noqa: B018
    with pytest.raises(UsageError, match=r"^/none/of/these is not a folder and cannot be downloaded") as refused:
        Checkpoint("/none/of/these")
    assert "\n" not in str(refused.value)


def test_a_name_of_the_hub_is_fetched(tmp_path, monkeypatch):
    made_by_transformers("BertForMaskedLM", tmp_path)
    download = Mock(return_value=str(tmp_path))
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert Checkpoint("some/bert").folder == tmp_path
    assert download.call_args.args == ("some/bert",) and download.call_args.kwargs["revision"] is None
    assert "*.safetensors" in download.call_args.kwargs["allow_patterns"]


def test_the_card_is_one_that_the_hub_reads(tmp_path):
    ours, tokenizer = system("gpt2")
    results = [Result("perplexity_word", 9.25, "grammar", "test"), Result("bits_per_byte", 1.5, "grammar", "test")]
    exported(ours, tokenizer, tmp_path, about="Of a small grammar.", datasets=["grammar"], results=results)
    card = ModelCard.load(tmp_path / "README.md")
    data = card.data.to_dict()
    expected = {"license": "apache-2.0", "library_name": "transformers", "pipeline_tag": "text-generation"}
    assert expected.items() <= data.items()
    assert data["datasets"] == ["grammar"] and data["metrics"] == ["perplexity_word", "bits_per_byte"]
    assert {"retable", "gpt2"} <= set(data["tags"])
    (entry,) = data["model-index"]
    assert entry["name"] == "tiny"
    listed = {(r.metric_type, r.metric_value, r.dataset_name, r.dataset_split) for r in card.data.eval_results}
    assert listed == {("perplexity_word", 9.25, "grammar", "test"), ("bits_per_byte", 1.5, "grammar", "test")}
    assert "Of a small grammar." in card.text and "| grammar | test | perplexity_word | 9.25 |" in card.text
    assert ModelCardData(**data).to_dict() == data


def test_the_published_recipes_are_models_that_can_go_either_way():
    """The sizes of bert-base, t5-base and gpt2 in transformers' defaults are those of the recipes."""
    for name, config in {
        "gpt2_124m": transformers.GPT2Config(),
        "bert_base": transformers.BertConfig(),
        "bert_large": transformers.BertConfig(
            hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
        ),
        "t5_small": transformers.T5Config(),
        "t5_base": transformers.T5Config(d_model=768, num_layers=12, num_heads=12, d_ff=3072),
        "electra_small": transformers.ElectraConfig(max_position_embeddings=128),
    }.items():
        cfg = composed("pretrain", name).model
        family = next(family for family in FAMILIES if family.model_type == config.model_type)
        with torch.device("meta"):
            model = get_class(cfg._target_)(
                vocab_size=config.vocab_size, **{k: v for k, v in cfg.items() if k != "_target_"}
            )
        settings, theirs = family.configuration(settings_of(model)), config.to_dict()
        differ = {key for key, value in settings.items() if value != theirs.get(key, value) and "drop" not in key}
        assert differ <= {"n_inner"}, name  # null in transformers: four times the width


@pytest.mark.parametrize(("recipe", "architecture"), [
    ("gpt", "GPT2LMHeadModel"),
    ("gpt_rotary", "Starcoder2ForCausalLM"),
    ("bert_rotary", "EsmForMaskedLM"),
    ("bert_base", "BertForPreTraining"),
    ("bert_small", "ElectraForMaskedLM"),
    ("electra_small", "ElectraForPreTraining"),
    ("t5", "T5ForConditionalGeneration"),
])  # fmt: skip
def test_the_recipes_that_can_go(recipe, architecture):
    """These are the recipes that docs/howto/huggingface.md names."""
    cfg, tokenizer = composed("pretrain", recipe), pieces()
    with torch.device("meta"):
        objective = build_objective(cfg, tokenizer, build_model(cfg, tokenizer))
    assert counterpart(objective)[1].architecture == architecture
