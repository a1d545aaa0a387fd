"""Compare speed and quality of word vectors with gensim: `python -m benchmarks.word_vectors`.

gensim is in the extra `dev`, which `make env` installs. Both sides train in turns on the generated lines of the
built-in corpus, with the same settings: 100 dimensions, window 5, 5 negatives, sub-sampling 1e-3. Learning rates decay
linearly, from 0.025 for skip-gram and 0.05 for fastText. CBOW starts at 0.05 in gensim and at 0.15 in Retable, because
Retable divides the gradient among the words of the window. Words per second are the words of the text times epochs,
divided by the wall time of training. Our side runs through the Lightning module. Quality is the accuracy on the
analogies of the built-in grammar with 3CosAdd, in percent.
"""

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from gensim.models import FastText as GensimFastText
from gensim.models import Word2Vec

from benchmarks.ratio import Ratio, at_least_one, command_line, show
from retable.data.windows import Windows
from retable.evaluation.analogies import analogy_accuracy
from retable.grammar.analogies import analogies
from retable.grammar.corpus import until
from retable.grammar.language import Grammar
from retable.metrics.intervals import mean_std
from retable.models.cbow import CBOW
from retable.models.fasttext import FastText
from retable.models.skipgram import SkipGram
from retable.objectives.hierarchical_softmax import HierarchicalSoftmax
from retable.objectives.negative_sampling import NegativeSampling
from retable.objectives.word_by_word import WordByWord
from retable.training.fit import fit
from retable.training.optimizers import sgd
from retable.training.schedules import linear_decay

MODELS = {"skip-gram": SkipGram, "CBOW": CBOW, "fastText": FastText}
RATES = {"skip-gram": 0.025, "CBOW": 0.15, "fastText": 0.05}
BUCKETS = 200_000


class Text:
    """The lines of words of corpus=grammar, and the same text as ids, with a line end (id 0) after each line."""

    def __init__(self, grammar: Grammar):
        documents = until(1_000_000, grammar.documents(1, "train"))
        self.lines = [line.split() for line in chain.from_iterable(documents)]
        counts = Counter(word for line in self.lines for word in line)
        self.words = ["<eos>", *sorted(counts, key=lambda word: (-counts[word], word))]
        ids = {word: i for i, word in enumerate(self.words)}
        self.counts = np.array([0, *(counts[word] for word in self.words[1:])])
        stream = (i for line in self.lines for i in (*map(ids.__getitem__, line), 0))
        self.tokens = np.fromiter(stream, np.uint32)
        self.n_words = int(self.counts.sum())


def ours(text: Text, system: str, output: str, threads: int, epochs: int, seed: int) -> tuple[float, np.ndarray]:
    """Train with Retable. Return the seconds of training, and the vectors of all words except the line end."""
    torch.manual_seed(seed)
    model = MODELS[system](text.words, 100, **({"buckets": BUCKETS} if system == "fastText" else {}))
    if output == "negative sampling":
        objective: torch.nn.Module = NegativeSampling(model, text.counts, seed=seed)
    else:
        objective = HierarchicalSoftmax(model, text.counts)
    windows = Windows(text.tokens, text.counts, 0, window=5, subsample=1e-3, batch_tokens=50_000, seed=seed)
    with tempfile.TemporaryDirectory() as scratch:
        started = time.perf_counter()
        fit(
            WordByWord(objective, threads), windows, seed=seed, epochs=epochs,
            optimizer=partial(sgd, lr=RATES[system]), schedule=linear_decay, clip_norm=None,
            trainer={"accelerator": "cpu", "devices": 1}, scratch=Path(scratch), checkpoint_every=10**9,
            validations=1 / epochs, validation=None, log=lambda points: None,
        )  # fmt: skip
        seconds = time.perf_counter() - started
    return seconds, model.vectors().numpy()[1:]


def gensims(text: Text, system: str, output: str, threads: int, epochs: int, seed: int) -> tuple[float, np.ndarray]:
    """Train with gensim. Return the seconds of training, and the vectors in the order of `text.words`."""
    kind = GensimFastText if system == "fastText" else Word2Vec
    hierarchical = output != "negative sampling"
    model = kind(
        vector_size=100, window=5, sample=1e-3, sg=system != "CBOW", hs=hierarchical, negative=0 if hierarchical else 5,
        min_count=1, workers=threads, seed=seed, alpha=0.025 if system == "skip-gram" else 0.05, min_alpha=1e-6,
        **({"bucket": BUCKETS} if system == "fastText" else {}),
    )  # fmt: skip
    model.build_vocab(text.lines)
    started = time.perf_counter()
    model.train(text.lines, total_examples=len(text.lines), epochs=epochs)
    return time.perf_counter() - started, model.wv[text.words[1:]]


def ratios(arguments: argparse.Namespace) -> Iterator[Ratio]:
    most_threads = arguments.threads
    torch.set_num_threads(1)  # as the embed stage does
    grammar = Grammar()
    text, questions = Text(grammar), analogies(grammar.lexicon)
    for system in arguments.systems:
        for output in arguments.outputs:
            ours(text, system, output, most_threads, 0.001, 1)  # compiles the loops before the measurement
            for threads in range(1, most_threads + 1):
                speeds: list[list[float]] = [[], []]
                accuracies: list[list[float]] = [[], []]
                for seed in range(1, arguments.rounds + 1):
                    for place, train in ((1, gensims), (0, ours)):
                        seconds, vectors = train(text, system, output, threads, arguments.epochs, seed)
                        speeds[place].append(text.n_words * arguments.epochs / seconds)
                        metrics = analogy_accuracy(vectors, text.words[1:], questions)
                        accuracies[place].append(100 * metrics["analogies/total/accuracy"])
                quality = ", peer ".join("{:.1f} ± {:.1f} %".format(*mean_std(each)) for each in accuracies)
                yield Ratio(
                    f"{system}, {output}, {threads} thread{'s' * (threads > 1)}", "gensim", "words/s",
                    *map(float, map(np.median, speeds)), f"analogies {quality}",
                )  # fmt: skip


def main() -> None:
    parser = command_line(__doc__, [*MODELS], rounds=3)
    parser.add_argument("--outputs", nargs="+", choices=["negative sampling", "hierarchical"],
                        default=["negative sampling"])  # fmt: skip
    parser.add_argument("--epochs", type=at_least_one, default=5)
    show(parser, ratios)


if __name__ == "__main__":
    main()
