"""Compiled loops of stochastic gradient descent on word vectors, one window or cell after the other.

Each takes the plain gradient step of its objective, pair after pair as word2vec.c does: the scores of a pair are taken
before the vector that predicts moves; an output vector moves as soon as it is scored. They release the interpreter's
lock, change the tables in place and return the summed loss in nats and the number of pairs (cells) that it covers.

N words of a slice, V vocabulary, U rows of the input table, D dimensions.
"""

import math

import numpy as np
from numba import njit

# fastmath lets sums be reordered into vector instructions; error_model spares a test for zero at every division.
compiled = njit(nogil=True, fastmath=True, cache=True, error_model="numpy")


@compiled
def negative_sampling(
    words, lines, reaches, start, stop, cbow,
    table, units, offsets, scales,
    output, threshold, alias, negatives, lr, state,
):  # fmt: skip
    """Windows `start` to `stop` of a slice: words, lines, reaches (N,).

    table (U, D), units, offsets (V + 1,), scales (V,): the input of word w is scales[w] · Σ table[units[offsets[w] :
    offsets[w + 1]]]. With `cbow` the mean of the window's inputs predicts the centre, without it the centre's input
    predicts each word of the window. output (V, D). Each pair has its own `negatives` words of noise from threshold,
    alias (V,), see `alias_table`, by the generator `state` (1,) uint64.
    """
    hidden, step, gradient = vectors(table)
    loss, n_pairs = 0.0, 0
    for i in range(start, stop):
        low, high = window(lines, reaches, i)
        if low == high:
            continue
        first, last = (low, high) if cbow else (i, i)
        gather(hidden, gradient, words, i, first, last, cbow, table, units, offsets, scales)
        likely = 1.0  # a product of probabilities: one logarithm a window
        for j in range(low, high + 1):
            if (j == i) != cbow:
                continue
            step[:] = 0
            likely *= push(hidden, output[words[j]], step, lr, True)
            for _ in range(negatives):
                likely *= push(hidden, output[draw(threshold, alias, state)], step, lr, False)
            follow(hidden, gradient, step, words[i], offsets, scales)
            n_pairs += 1
        scatter(gradient, words, i, first, last, cbow, table, units, offsets, scales)
        loss -= math.log(max(likely, 1e-300))
    return loss, n_pairs


@compiled
def hierarchical_softmax(
    words, lines, reaches, start, stop, cbow,
    table, units, offsets, scales,
    output, nodes, codes, lengths, lr,
):  # fmt: skip
    """As `negative_sampling`, a word's probability the product over its path: nodes, codes (V, L), lengths (V,)."""
    hidden, step, gradient = vectors(table)
    loss, n_pairs = 0.0, 0
    for i in range(start, stop):
        low, high = window(lines, reaches, i)
        if low == high:
            continue
        first, last = (low, high) if cbow else (i, i)
        gather(hidden, gradient, words, i, first, last, cbow, table, units, offsets, scales)
        for j in range(low, high + 1):
            if (j == i) != cbow:
                continue
            target, likely = words[j], 1.0
            step[:] = 0
            for k in range(lengths[target]):
                likely *= push(hidden, output[nodes[target, k]], step, lr, codes[target, k] == 0)
            follow(hidden, gradient, step, words[i], offsets, scales)
            loss -= math.log(max(likely, 1e-300))
            n_pairs += 1
        scatter(gradient, words, i, first, last, cbow, table, units, offsets, scales)
    return loss, n_pairs


@compiled
def least_squares(
    words, contexts, values, start, stop,
    w, b_w, c, b_c, squares_w, squares_b_w, squares_c, squares_b_c,
    x_max, power, lr,
):  # fmt: skip
    """Cells `start` to `stop` of GloVe's matrix: words, contexts, values (N,), by AdaGrad.

    w, c (V, D) word and context vectors, b_w, b_c (V, 1) their biases, and the sums of squared gradients of each.
    """
    loss = 0.0
    for n in range(start, stop):
        i, j, x = words[n], contexts[n], values[n]
        error = b_w[i, 0] + b_c[j, 0] - np.float32(math.log(x))
        for d in range(w.shape[1]):
            error += w[i, d] * c[j, d]
        weight = np.float32(min((x / x_max) ** power, 1.0))
        loss += weight * error * error
        slope = np.float32(2) * weight * error
        for d in range(w.shape[1]):
            to_w, to_c = slope * c[j, d], slope * w[i, d]
            squares_w[i, d] += to_w * to_w
            squares_c[j, d] += to_c * to_c
            w[i, d] -= lr * to_w / np.sqrt(squares_w[i, d])
            c[j, d] -= lr * to_c / np.sqrt(squares_c[j, d])
        squares_b_w[i, 0] += slope * slope
        squares_b_c[j, 0] += slope * slope
        b_w[i, 0] -= lr * slope / np.sqrt(squares_b_w[i, 0])
        b_c[j, 0] -= lr * slope / np.sqrt(squares_b_c[j, 0])
    return loss, stop - start


@compiled
def window(lines, reaches, i):
    """The first and the last place of the window round place i, within its line."""
    low, high = max(i - reaches[i], 0), min(i + reaches[i], len(lines) - 1)
    while lines[low] != lines[i]:
        low += 1
    while lines[high] != lines[i]:
        high -= 1
    return low, high


@compiled
def vectors(table):
    """Three vectors (D,) to work in."""
    return np.empty_like(table[0]), np.empty_like(table[0]), np.empty_like(table[0])


@compiled
def follow(hidden, gradient, step, word, offsets, scales):
    """Count a pair's step in, and move `hidden`, the input of `word`, as far as the table's rows will move it.

    (CBOW's input, of several words, predicts once and is not asked again.)
    """
    share = scales[word] * scales[word] * np.float32(offsets[word + 1] - offsets[word])
    for d in range(len(hidden)):
        gradient[d] += step[d]
        hidden[d] += share * step[d]


@compiled
def gather(hidden, gradient, words, i, first, last, cbow, table, units, offsets, scales):
    """Into `hidden` the input at place i, or with `cbow` the mean input of first to last without i; gradient = 0."""
    for d in range(len(hidden)):
        hidden[d] = gradient[d] = 0
    for j in range(first, last + 1):
        if cbow and j == i:
            continue
        word = words[j]
        scale = scales[word] / np.float32(max(last - first, 1))
        for k in range(offsets[word], offsets[word + 1]):
            row = table[units[k]]
            for d in range(len(hidden)):
                hidden[d] += scale * row[d]


@compiled
def scatter(gradient, words, i, first, last, cbow, table, units, offsets, scales):
    """Add to every row that `gather` read its share of the step."""
    for j in range(first, last + 1):
        if cbow and j == i:
            continue
        word = words[j]
        scale = scales[word] / np.float32(max(last - first, 1))
        for k in range(offsets[word], offsets[word + 1]):
            row = table[units[k]]
            for d in range(len(gradient)):
                row[d] += scale * gradient[d]


@compiled
def push(hidden, output, gradient, rate, label):
    """Move `output` one step up the log-probability that hidden·output has `label`, and add hidden's to `gradient`.

    Returns that probability, as it was before.
    """
    score = np.float32(0)
    for d in range(len(hidden)):
        score += hidden[d] * output[d]
    one = np.float32(1)
    probability = one / (one + np.exp(-score if label else score))
    step = rate * (one - probability) if label else -rate * (one - probability)
    for d in range(len(hidden)):
        gradient[d] += step * output[d]
        output[d] += step * hidden[d]
    return probability


@compiled
def draw(threshold, alias, state):
    """An outcome of `alias_table`'s distribution, by Marsaglia's xorshift (2003) on state (1,) uint64."""
    bits = state[0]
    bits ^= bits << np.uint64(13)
    bits ^= bits >> np.uint64(7)
    bits ^= bits << np.uint64(17)
    state[0] = bits
    place = np.int64(((bits >> np.uint64(32)) * np.uint64(len(alias))) >> np.uint64(32))
    return place if np.uint32(bits & np.uint64(0xFFFFFFFF)) < threshold[place] else np.int64(alias[place])


@compiled
def draw_many(threshold, alias, state, n):
    """`n` outcomes, (n,) int64."""
    outcomes = np.empty(n, np.int64)
    for i in range(n):
        outcomes[i] = draw(threshold, alias, state)
    return outcomes


def alias_table(probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Walker's alias method (1977; Vose 1991): threshold (V,) uint32 and alias (V,) int32.

    A uniform place v is the outcome with probability threshold[v] / 2³², else alias[v] is: one draw takes constant
    time and 8 bytes a word, where word2vec.c's table takes 400 MB and rounds to it.
    """
    share = probabilities / probabilities.sum() * len(probabilities)
    threshold, alias = np.ones(len(share)), np.arange(len(share), dtype=np.int32)
    small, large = list(np.flatnonzero(share < 1)), list(np.flatnonzero(share >= 1))
    while small and large:
        low, high = small.pop(), large[-1]
        threshold[low], alias[low] = share[low], high
        share[high] -= 1 - share[low]
        if share[high] < 1:
            small.append(large.pop())
    return np.minimum(threshold * 2**32, 2**32 - 1).astype(np.uint32), alias
