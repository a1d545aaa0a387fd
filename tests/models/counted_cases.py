"""Small corpora for the models that are counted: sentences of word ids, and the stream that they stand in."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

END = 0  # the boundary's id


def stream(sentences: list[list[int]]) -> np.ndarray:
    return np.array([token for sentence in sentences for token in [*sentence, END]], np.uint16)


def sentences(seed: int, n: int, n_words: int) -> list[list[int]]:
    """Of words from 1 up, the last of them rare, some words more likely after some others."""
    rng = np.random.default_rng(seed)
    made = []
    for length in rng.integers(0, 8, n):
        words = np.minimum(rng.geometric(0.35, length), n_words)
        words[1:][rng.random(max(length - 1, 0)) < 0.4] = 1 + words[0] % n_words if length else 0
        made.append(words.tolist())
    return made


def words_of(text: list[list[int]]) -> list[tuple[int, tuple]]:
    """Return each word of sentences with the words before it in its sentence, `<s>` first."""
    return [(word, ("<s>", *sentence[:i])) for sentence in text for i, word in enumerate([*sentence, END])]


def penn_treebank(data_dir: Path, make: Callable[..., object]) -> dict[str, float]:
    """Estimate `make(vocab_size, boundary)` on the training text. Return its perplexity on the other two."""
    words = {
        split: [w for line in (data_dir / "ptb" / f"ptb.{split}.txt").open() for w in [*line.split(), "<eos>"]]
        for split in ("train", "valid", "test")
    }
    ids = {word: index for index, word in enumerate(dict.fromkeys(words["train"]))}
    assert len(ids) == 10_000
    model = make(len(ids), ids["<eos>"])
    model.estimate(np.array([ids[word] for word in words["train"]]))
    return {
        split: float(np.exp(-model.log_prob(np.array([ids[word] for word in words[split]])).mean()))
        for split in ("valid", "test")
    } | {"model": model}
