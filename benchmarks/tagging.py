"""Compare the training speed of a BiLSTM-CRF with plain PyTorch: `python -m benchmarks.tagging`.

Trains on the chunks of CoNLL-2000 in IOB2 with the sizes of recipe taggers/bilstm_crf: words only (Huang, Xu and Yu
2015), or words and a convolution over their characters (Ma and Hovy 2016). The peer is the usual implementation: random
batches padded to their longest sentence, a packed bidirectional nn.LSTM, and the CRF of pytorch-crf, a loop over time
with autograd; every word of a batch is convolved. Our side uses batches of similar length. Sentences, sizes, batch
size, optimizer and clipping are the same. With the same weights, both sides have the same loss
(tests/benchmarks/test_tagging.py). Both sides run in turns in one process, and the times include batches and optimizer.
Speed is all words divided by all seconds, without the first steps.

The data are in the folder that RETABLE_DATA names, by default `data`. Without them, random sentences are drawn whose
lengths are distributed as in CoNLL-2000.
"""

import argparse
import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from benchmarks.language_models import WARMING
from benchmarks.ratio import Ratio, at_least_one, command_line, show, times
from retable.corpora.columns import TaggedSentence, read_tagged
from retable.data.bucketed import Bucketed
from retable.data.tagged import TaggedExample, encoded
from retable.models.bilstm import BiLSTM
from retable.models.tagger import BiLSTMTagger
from retable.nn.character_cnn import N_SYMBOLS, PADDING, spell
from retable.objectives.tagging import Tagging
from retable.training.optimizers import adamw

D_EMBEDDING, D_MODEL, D_CHARACTER, WIDTH, FEATURES, DROPOUT = 100, 200, 30, 3, 30, 0.5
SYSTEMS = ("words", "words and characters")


class Data(NamedTuple):
    words: list[str]  # by id; 0 is padding
    tags: list[str]
    examples: list[TaggedExample]


def chunks(path: Path) -> Data:
    """Read the sentences of a file in columns. If the file does not exist, draw as many random sentences."""
    sentences = read_tagged(path) if path.exists() else drawn(8936)
    words = {
        word: i for i, word in enumerate(dict.fromkeys(["", *(word for each in sentences for word in each.words)]))
    }
    tags = {tag: i for i, tag in enumerate(sorted({tag for each in sentences for tag in each.tags}))}
    examples = [
        TaggedExample([words[word] for word in each.words], range(len(each.words)), [tags[tag] for tag in each.tags])
        for each in sentences
    ]
    return Data([*words], [*tags], examples)


def drawn(n: int) -> list[TaggedSentence]:
    """Draw n sentences of 24 ± 11 words with random tags.

    They have as many word types as CoNLL-2000, with Zipf's frequencies.
    """
    generator = np.random.default_rng(1)
    shares = 1 / np.arange(1, 19_123)
    words = np.array([f"w{i}" for i in range(len(shares))])
    tags = np.array(["O", *(f"{letter}-{kind}" for kind in "abcdefghijk" for letter in "BI")])
    lengths = generator.gamma((24 / 11) ** 2, 11**2 / 24, n).round().clip(1, 78).astype(int)
    return [
        TaggedSentence(
            generator.choice(words, length, p=shares / shares.sum()).tolist(), generator.choice(tags, length).tolist()
        )
        for length in lengths
    ]


class PlainCRF(nn.Module):
    """The likelihood of pytorch-crf 0.7.2 (Kemal Kurniawan), computed as there; time is the first dimension."""

    def __init__(self, n_tags: int):
        super().__init__()
        self.start_transitions = nn.Parameter(torch.empty(n_tags).uniform_(-0.1, 0.1))
        self.end_transitions = nn.Parameter(torch.empty(n_tags).uniform_(-0.1, 0.1))
        self.transitions = nn.Parameter(torch.empty(n_tags, n_tags).uniform_(-0.1, 0.1))

    def forward(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Return the mean log-likelihood per token, from emissions (T, B, K), tags (T, B) and mask (T, B)."""
        return (self.numerator(emissions, tags, mask.float()) - self.normalizer(emissions, mask)).sum() / mask.sum()

    def numerator(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        rows = torch.arange(tags.shape[1])
        score = self.start_transitions[tags[0]] + emissions[0, rows, tags[0]]
        for i in range(1, len(tags)):
            score = score + self.transitions[tags[i - 1], tags[i]] * mask[i]
            score = score + emissions[i, rows, tags[i]] * mask[i]
        ends = mask.long().sum(dim=0) - 1
        return score + self.end_transitions[tags[ends, rows]]

    def normalizer(self, emissions: Tensor, mask: Tensor) -> Tensor:
        score = self.start_transitions + emissions[0]
        for i in range(1, len(emissions)):
            following = score.unsqueeze(2) + self.transitions + emissions[i].unsqueeze(1)
            score = torch.where(mask[i].unsqueeze(1), torch.logsumexp(following, dim=1), score)
        return torch.logsumexp(score + self.end_transitions, dim=1)


class PlainTagger(nn.Module):
    """The peer's tagger. `spelling` (W, L) has the characters of all words; with None, no characters are read."""

    def __init__(self, n_words: int, n_tags: int, spelling: Tensor | None):
        super().__init__()
        self.embedding = nn.Embedding(n_words, D_EMBEDDING)
        self.spelling = spelling
        if spelling is not None:
            self.characters = nn.Embedding(N_SYMBOLS, D_CHARACTER, padding_idx=PADDING)
            self.convolution = nn.Conv1d(D_CHARACTER, FEATURES, WIDTH)
        d_input = D_EMBEDDING + (0 if spelling is None else FEATURES)
        self.lstm = nn.LSTM(d_input, D_MODEL // 2, bidirectional=True, batch_first=True)
        self.dropout, self.linear, self.crf = nn.Dropout(DROPOUT), nn.Linear(D_MODEL, n_tags), PlainCRF(n_tags)

    def forward(self, ids: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """Return the loss, from ids (B, T), tags (B, T) and lengths (B,)."""
        inputs = self.embedding(ids)
        if self.spelling is not None:
            spelling = self.spelling[ids]
            longest = int((spelling != PADDING).sum(dim=2).max())
            characters = self.characters(spelling[:, :, : longest + WIDTH].flatten(0, 1)).transpose(1, 2)
            features = torch.tanh(self.convolution(characters)).max(dim=2).values
            inputs = torch.cat([inputs, features.view(*ids.shape, -1)], dim=2)
        packed = pack_padded_sequence(self.dropout(inputs), lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        mask = torch.arange(ids.shape[1]) < lengths[:, None]
        emissions = self.linear(self.dropout(hidden))
        return -self.crf(emissions.transpose(0, 1), tags.T, mask.T)


class Side(NamedTuple):
    module: nn.Module
    loss: Callable[[int], tuple[Tensor, int]]  # maps a step to its loss and its number of words


def ours(data: Data, system: str, batch_size: int) -> Side:
    sizes = {"d_embedding": D_EMBEDDING, "d_model": D_MODEL, "n_layers": 1, "dropout": DROPOUT}
    model = (
        BiLSTM(len(data.words), **sizes)
        if system == "words"
        else BiLSTMTagger(len(data.words), data.words, d_character=D_CHARACTER, filters=[(WIDTH, FEATURES)], **sizes)
    )
    objective = Tagging(model, data.tags, dropout=0.0, crf=True)  # dropout 0: the model applies dropout to its outputs
    batches = Bucketed(encoded(data.examples), batch_size, seed=1)

    def loss(step: int) -> tuple[Tensor, int]:
        batch = batches.batch(step)
        return objective.loss(batch, None, step)[0], int(batch.n_words.sum())

    return Side(objective, loss)


def theirs(data: Data, system: str, batch_size: int) -> Side:
    model = PlainTagger(len(data.words), len(data.tags), None if system == "words" else spell(data.words, WIDTH))
    order = np.random.default_rng(1).permutation(len(data.examples))

    def loss(step: int) -> tuple[Tensor, int]:
        places = order.take(range(step * batch_size, (step + 1) * batch_size), mode="wrap")
        ids = [torch.tensor(data.examples[place].input_ids) for place in places]
        tags = [torch.tensor(data.examples[place].tags) for place in places]
        lengths = torch.tensor([len(row) for row in ids])
        padded = (pad_sequence(rows, batch_first=True) for rows in (ids, tags))
        return model(*padded, lengths), int(lengths.sum())

    return Side(model, loss)


def steps(side: Side, trained: list[int]) -> Iterator[None]:
    """Train, and yield after each step; append the step's number of words to `trained`."""
    optimizer = adamw(side.module, lr=4e-3, weight_decay=0.01)
    side.module.train()
    for step in count():
        loss, n = side.loss(step)
        loss.backward()
        nn.utils.clip_grad_norm_(side.module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        trained.append(n)
        yield


def ratios(arguments: argparse.Namespace) -> Iterator[Ratio]:
    data = chunks(Path(os.environ.get("RETABLE_DATA", "data"), "conll2000/train.txt"))
    for system in arguments.systems:
        torch.manual_seed(1)
        sides = [make(data, system, arguments.batch_size) for make in (ours, theirs)]
        trained: list[list[int]] = [[], []]
        running = [steps(side, words) for side, words in zip(sides, trained, strict=True)]
        for each, words in zip(running, trained, strict=True):
            times(each, WARMING)
            words.clear()
        seconds: list[list[float]] = [[], []]
        for _ in range(arguments.rounds):
            for spent, each in zip(seconds, running, strict=True):
                spent += times(each, arguments.steps)
        speeds = [sum(words) / sum(spent) for words, spent in zip(trained, seconds, strict=True)]
        yield Ratio(f"BiLSTM-CRF, {system}", "plain PyTorch", "tokens/s", *speeds)


def main() -> None:
    parser = command_line(__doc__, SYSTEMS, rounds=6)
    parser.add_argument("--steps", type=at_least_one, default=15, help="steps of each side per round")
    parser.add_argument("--batch-size", type=at_least_one, default=32)
    show(parser, ratios)


if __name__ == "__main__":
    main()
