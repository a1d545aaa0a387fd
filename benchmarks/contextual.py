"""Compare speed and memory of contextual pretraining with peers: `python -m benchmarks.contextual`.

Encoders of 4 layers of width 256, 30,522 types, no dropout, 32 rows of up to 128 tokens per step, the same optimizer:

BERT        masked LM on the same documents. Our side packs them into full rows and computes the softmax only at
            predicted tokens. transformers' BertForMaskedLM gets pieces of documents, which its collator pads to the
            longest piece of a batch, and computes the softmax at all places.
BERT, same rows   both sides read the rows that our side packs. A plain BERT also computes the softmax only at
            predicted tokens; its model and cross-entropy are compiled as one graph, with torch's attention kernel or
            with attention as explicit products.
T5          4 encoder layers, 4 decoder layers, random spans; both sides read the same pairs.
ELECTRA     embeddings of 128, a generator of a quarter of the width; both sides read the rows that our side packs. The
            peer is ElectraForMaskedLM with ElectraForPreTraining, which share token and position embeddings.

transformers' models run eagerly and, except ELECTRA, compiled with their losses. Tokens are counted in inputs and
targets, without padding. All sides run in turns in one process with the same allocator settings; the first steps, in
which torch.compile compiles, are not counted. Speed is tokens over the median step, including batches and optimizer; a
row has the median, lowest and highest ratio of the rounds. With `--memory`, the peak memory of our side and of
transformers is measured over a few steps in a separate process, minus the memory of this process before the model was
built.

transformers is in the extra `dev`.
"""

import argparse
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from benchmarks.language_models import WARMING, autocast, plain_attention
from benchmarks.ratio import Ratio, at_least_one, command_line, in_turns, peak_of, precisions, show, times
from retable.data.corruption import START, Corrupted, RandomSpans
from retable.data.masking import MaskedBatch, MaskedDocuments
from retable.models.bert import BERT
from retable.models.t5 import T5
from retable.nn.attention import padding_mask, padding_mask_if_any
from retable.nn.product import use_faster_products
from retable.objectives.base import Objective
from retable.objectives.masked_lm import MaskedLM
from retable.objectives.replaced_token_detection import ReplacedTokenDetection
from retable.objectives.text_to_text import TextToText
from retable.training.optimizers import adamw

MARKS = ["[PAD]", "</s>", "[CLS]", "[SEP]", "[MASK]", *(f"<extra_id_{i}>" for i in range(20))]
LINE_END = len(MARKS)
PREDICTED_NOWHERE = -100  # the label that transformers ignores: no token is predicted at this place


class Sizes(NamedTuple):
    vocab_size: int = 30_522
    d_model: int = 256
    n_layers: int = 4
    batch_size: int = 32
    length: int = 128

    def encoder(self, share: int = 1) -> dict[str, int]:
        """Return an encoder's settings, with its width divided by `share`."""
        d_model = self.d_model // share
        return {"d_model": d_model, "n_layers": self.n_layers, "n_heads": max(d_model // 64, 1)}


class Side(NamedTuple):
    """A module to train, a function that maps a step to its loss, and the mean tokens per step, without padding."""

    module: nn.Module
    loss: Callable[[int], Tensor]
    tokens: float


def compiled(build: Callable[[Sizes], Side], sizes: Sizes) -> Side:
    """Return a side whose module, which computes the loss, is compiled."""
    side = build(sizes)
    side.module.compile()
    return side


class Text:
    """Documents of random words, for batches; their lengths are log-normal, two thirds between 70 and 330 words."""

    def __init__(self, vocab_size: int, n_documents: int = 3000):
        rng = np.random.default_rng(1)
        lengths = rng.lognormal(np.log(150), 0.8, n_documents).astype(np.int64) + 2
        self.documents = [rng.integers(LINE_END + 1, vocab_size, length) for length in lengths]
        ended = [np.append(document, [LINE_END, LINE_END]) for document in self.documents]
        self.stream = {
            "tokens": np.concatenate(ended),
            "line_end": LINE_END,
            "marks": {mark: i for i, mark in enumerate(MARKS)},
            "seed": 1,
        }
        self.units = np.stack([lengths + 2, lengths, lengths], axis=1)
        self.words = [*MARKS, *(f"w{i}" for i in range(len(MARKS), vocab_size))]

    def masked(self, sizes: Sizes, **shares: float) -> MaskedDocuments:
        """Return our batches of masked rows."""
        return MaskedDocuments(
            **self.stream,
            units=self.units,
            words=self.words,
            batch_size=sizes.batch_size,
            length=sizes.length,
            **shares,
        )


class Padded:
    """Batches of transformers' collator: each row is one piece of a document; rows are in random order."""

    def __init__(self, text: Text, sizes: Sizes):
        from tokenizers import Tokenizer
        from tokenizers.models import WordLevel

        words = Tokenizer(WordLevel({word: i for i, word in enumerate(text.words)}, unk_token="[PAD]"))
        self._collate = DataCollatorForLanguageModeling(
            PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", mask_token="[MASK]")
        )
        width, (cls, sep) = sizes.length - 2, (MARKS.index(mark) for mark in ("[CLS]", "[SEP]"))
        pieces = [document[i : i + width] for document in text.documents for i in range(0, len(document), width)]
        order = np.random.default_rng(1).permutation(len(pieces))
        self._rows = [[cls, *pieces[i].tolist(), sep] for i in order]
        self._batch_size = sizes.batch_size
        self.tokens_per_step = self._batch_size * sum(map(len, self._rows)) / len(self._rows)

    def batch(self, step: int) -> dict[str, Tensor]:
        n = len(self._rows)
        rows = [self._rows[i % n] for i in range(step * self._batch_size, (step + 1) * self._batch_size)]
        marks = [[1] + [0] * (len(row) - 2) + [1] for row in rows]
        examples = [{"input_ids": row, "special_tokens_mask": mark} for row, mark in zip(rows, marks, strict=True)]
        return dict(self._collate(examples))


def spread(batch: MaskedBatch) -> dict[str, Tensor]:
    """Convert our batch to transformers' form, which has a label at every place, also at unmasked ones."""
    labels = torch.full_like(batch.input_ids, PREDICTED_NOWHERE)
    labels.view(-1)[batch.places] = batch.labels
    real = padding_mask(batch.lengths, labels.shape[1])[:, 0, 0].long()
    return {"input_ids": batch.input_ids, "attention_mask": real, "token_type_ids": batch.segments, "labels": labels}


def theirs(kind: type, sizes: Sizes, share: int = 1, **more: Any) -> Any:
    """Return transformers' configuration of a BERT or an ELECTRA."""
    encoder = sizes.encoder(share)
    return kind(
        vocab_size=sizes.vocab_size, hidden_size=encoder["d_model"], num_hidden_layers=encoder["n_layers"],
        num_attention_heads=encoder["n_heads"], intermediate_size=4 * encoder["d_model"],
        max_position_embeddings=sizes.length, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **more,
    )  # fmt: skip


def our_bert(sizes: Sizes) -> Side:
    model = BERT(sizes.vocab_size, **sizes.encoder(), max_length=sizes.length, dropout=0.0, pooler=False)
    objective, data = MaskedLM(model, sizes.vocab_size, next_sentence=False), Text(sizes.vocab_size).masked(sizes)
    return Side(objective, lambda step: objective.loss(data.batch(step), None, step)[0], data.tokens_per_step)


def padded_bert(sizes: Sizes) -> Side:
    model, data = BertForMaskedLM(theirs(BertConfig, sizes)), Padded(Text(sizes.vocab_size), sizes)
    return Side(model, lambda step: model(**data.batch(step)).loss, data.tokens_per_step)


def packed_bert(sizes: Sizes) -> Side:
    model, data = BertForMaskedLM(theirs(BertConfig, sizes)), Text(sizes.vocab_size).masked(sizes)
    return Side(model, lambda step: model(**spread(data.batch(step))).loss, data.tokens_per_step)


class PlainBERT(nn.Module):
    """A BERT as users write it, with the mean cross-entropy at the predicted places as its result."""

    def __init__(self, sizes: Sizes, explicit: bool):
        super().__init__()
        d, n_layers, self.heads = sizes.encoder().values()
        self.explicit = explicit
        self.words, self.places = nn.Embedding(sizes.vocab_size, d), nn.Embedding(sizes.length, d)
        self.segments, self.norm = nn.Embedding(2, d), nn.LayerNorm(d)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({
                "mix": nn.Linear(d, 3 * d), "out": nn.Linear(d, d), "norm": nn.LayerNorm(d),
                "expand": nn.Linear(d, 4 * d), "contract": nn.Linear(4 * d, d), "norm_2": nn.LayerNorm(d),
            })
            for _ in range(n_layers)
        )  # fmt: skip
        self.dense, self.dense_norm = nn.Linear(d, d), nn.LayerNorm(d)
        self.bias = nn.Parameter(torch.zeros(sizes.vocab_size))
        for name, p in self.named_parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, ids: Tensor, segments: Tensor, mask: Tensor | None, places: Tensor, labels: Tensor) -> Tensor:
        B, T = ids.shape
        x = self.norm(self.words(ids) + self.places.weight[:T] + self.segments(segments))
        for block in self.blocks:
            q, k, v = block["mix"](x).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            mixed = plain_attention(q, k, v, mask, 0.0, self.explicit).transpose(1, 2).reshape(B, T, -1)
            x = block["norm"](x + block["out"](mixed))
            x = block["norm_2"](x + block["contract"](F.gelu(block["expand"](x))))
        hidden = self.dense_norm(F.gelu(self.dense(x.flatten(0, 1)[places])))
        return F.cross_entropy(F.linear(hidden, self.words.weight, self.bias).float(), labels)


def plain_bert(sizes: Sizes, explicit: bool) -> Side:
    model, data = PlainBERT(sizes, explicit), Text(sizes.vocab_size).masked(sizes)
    model.compile()

    def loss(step: int) -> Tensor:
        batch = data.batch(step)
        mask = padding_mask_if_any(batch.lengths, batch.input_ids.shape[1])
        return model(batch.input_ids, batch.segments, mask, batch.places, batch.labels) * batch.share

    return Side(model, loss, data.tokens_per_step)


def pairs(sizes: Sizes) -> tuple[Corrupted, float]:
    """Return batches for T5, and the number of tokens in a batch."""
    data = Corrupted(
        **Text(sizes.vocab_size).stream, vocab_size=sizes.vocab_size, corruption=RandomSpans(),
        batch_size=sizes.batch_size, length=sizes.length,
    )  # fmt: skip
    batch = data.batch(0)
    return data, float(batch.source_lengths.sum() + batch.target_lengths.sum())


def our_t5(sizes: Sizes) -> Side:
    model = T5(sizes.vocab_size, **sizes.encoder(), d_ff=4 * sizes.d_model, dropout=0.0)
    objective, (data, tokens) = TextToText(model, sizes.vocab_size, tie=True), pairs(sizes)
    return Side(objective, lambda step: objective.loss(data.batch(step), None, step)[0], tokens)


def their_t5(sizes: Sizes) -> Side:
    encoder, (data, tokens) = sizes.encoder(), pairs(sizes)
    model = T5ForConditionalGeneration(
        T5Config(
            vocab_size=sizes.vocab_size, d_model=sizes.d_model, d_kv=sizes.d_model // encoder["n_heads"],
            d_ff=4 * sizes.d_model, num_layers=sizes.n_layers, num_heads=encoder["n_heads"], dropout_rate=0.0,
            pad_token_id=0, eos_token_id=1, decoder_start_token_id=START,
        )
    )  # fmt: skip

    def loss(step: int) -> Tensor:
        batch = data.batch(step)
        read, written = (
            padding_mask(lengths, ids.shape[1])[:, 0, 0]
            for lengths, ids in ((batch.source_lengths, batch.source_ids), (batch.target_lengths, batch.labels))
        )
        labels = batch.labels.masked_fill(~written, PREDICTED_NOWHERE)
        return model(batch.source_ids, read.long(), labels=labels, use_cache=False).loss

    return Side(model, loss, tokens)


def our_electra(sizes: Sizes) -> Side:
    common = {"max_length": sizes.length, "dropout": 0.0, "d_embedding": sizes.d_model // 2, "pooler": False}
    objective = ReplacedTokenDetection(
        BERT(sizes.vocab_size, **sizes.encoder(), **common),
        sizes.vocab_size,
        partial(BERT, **sizes.encoder(4), **common),
    )
    data = Text(sizes.vocab_size).masked(sizes, masked=1.0, random=0.0)
    return Side(objective, lambda step: objective.loss(data.batch(step), None, step)[0], data.tokens_per_step)


class Electra(nn.Module):
    """The generator and the discriminator of transformers, combined as in the code of ELECTRA's authors."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        width = {"embedding_size": sizes.d_model // 2}
        self.generator = ElectraForMaskedLM(theirs(ElectraConfig, sizes, 4, **width))
        self.discriminator = ElectraForPreTraining(theirs(ElectraConfig, sizes, **width))
        ours, its = self.discriminator.electra.embeddings, self.generator.electra.embeddings
        its.word_embeddings, its.position_embeddings = ours.word_embeddings, ours.position_embeddings
        self.generator.generator_lm_head.weight = ours.word_embeddings.weight

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor, draws: Tensor) -> Tensor:
        """Return the loss; inputs have shape (B, T), `draws` has one uniform number per masked place."""
        made, masked = self.generator(input_ids, attention_mask, labels=labels), labels != PREDICTED_NOWHERE
        below = made.logits.detach()[masked].float().softmax(1).cumsum(1)
        drawn = torch.searchsorted(below, draws[:, None] * below[:, -1:], right=True)
        text = input_ids.masked_scatter(masked, drawn)
        replaced = masked & (text != labels)
        return made.loss + 50 * self.discriminator(text, attention_mask, labels=replaced.long()).loss


def their_electra(sizes: Sizes) -> Side:
    model, data = Electra(sizes), Text(sizes.vocab_size).masked(sizes, masked=1.0, random=0.0)

    def loss(step: int) -> Tensor:
        batch = data.batch(step)
        tensors = spread(batch)
        return model(tensors["input_ids"], tensors["attention_mask"], tensors["labels"], batch.draws)

    return Side(model, loss, data.tokens_per_step)


PEER = "transformers"  # the peer whose memory is measured
SYSTEMS: dict[str, tuple[Callable[[Sizes], Side], dict[str, Callable[[Sizes], Side]]]] = {  # our side, its peers
    "BERT": (our_bert, {PEER: padded_bert, f"{PEER}, compiled": partial(compiled, padded_bert)}),
    "BERT, same rows": (our_bert, {
        PEER: packed_bert,
        f"{PEER}, compiled": partial(compiled, packed_bert),
        "a plain BERT, compiled": partial(plain_bert, explicit=False),
        "a plain BERT, compiled, products": partial(plain_bert, explicit=True),
    }),
    "T5": (our_t5, {PEER: their_t5, f"{PEER}, compiled": partial(compiled, their_t5)}),
    "ELECTRA": (our_electra, {PEER: their_electra}),
}  # fmt: skip


def steps(side: Side, precision: str) -> Iterator[None]:
    side.module.train()
    if isinstance(side.module, Objective):
        use_faster_products(side.module)
    optimizer = adamw(side.module, lr=1e-4, weight_decay=0.01)
    for step in count():
        with autocast(precision):
            loss = side.loss(step)
        loss.backward()
        nn.utils.clip_grad_norm_(side.module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield


def peak_mib(build: Callable[[Sizes], Side], sizes: Sizes, precision: str, threads: int) -> float:
    """Measure the peak memory of a few steps, in MiB. Run it in a separate process."""
    return peak_of(lambda: times(steps(build(sizes), precision), WARMING), threads)


def ratios(arguments: argparse.Namespace) -> Iterator[Ratio]:
    sizes = Sizes(*(getattr(arguments, name) for name in Sizes._fields))
    for name in arguments.systems:
        build_ours, peers = SYSTEMS[name]
        for precision in arguments.precisions:
            memory = ""
            if arguments.memory:
                peaks = []
                for build in (build_ours, peers[PEER]):
                    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                        peaks.append(pool.submit(peak_mib, build, sizes, precision, arguments.threads).result())
                memory = f"memory {peaks[0]:,.0f} MiB, {PEER} {peaks[1]:,.0f} MiB"
            torch.manual_seed(1)
            sides = {"ours": build_ours(sizes)} | {peer: build(sizes) for peer, build in peers.items()}
            running = {each: steps(side, precision) for each, side in sides.items()}
            seconds = in_turns(running, WARMING, arguments.rounds, arguments.steps)
            per_token = {
                each: [spent / sides[each].tokens for spent in seconds_of_rounds]
                for each, seconds_of_rounds in seconds.items()
            }
            for peer in peers:
                yield Ratio.of(f"{name}, {precision}", peer, "tokens/s", 1, per_token["ours"], per_token[peer], memory)
            torch.compiler.reset()


def main() -> None:
    parser = precisions(command_line(__doc__, [*SYSTEMS], rounds=7))
    parser.add_argument("--steps", type=at_least_one, default=2, help="steps of each side per round")
    parser.add_argument("--memory", action="store_true", help="also measure the peak memory of both sides")
    for name, default in Sizes()._asdict().items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=at_least_one, default=default)
    show(parser, ratios)


if __name__ == "__main__":
    main()
