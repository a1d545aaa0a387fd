"""Small corpora for the models that are counted: sentences of word ids, and the stream that they stand in."""

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
