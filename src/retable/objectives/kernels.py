"""Compiled loops that train word vectors by stochastic gradient descent, one window or matrix cell at a time.

Each loop goes through the pairs one by one and makes a plain gradient step for each pair, as word2vec.c does. All
scores of a pair are computed before any vector of the pair changes. So the processor can compute several scores at the
same time. The loops release the interpreter's lock and change the tables in place. Each loop returns the sum of the
losses, in nats, and the number of pairs or cells in this sum.

Shapes: N words of a slice, V vocabulary, U rows of the input table, D dimensions.
"""

import math

import numpy as np
from numba import njit

# With fastmath, sums may use vector instructions; error_model="numpy" avoids a test for zero at every division.
compiled = njit(nogil=True, fastmath=True, cache=True, error_model="numpy")
# Functions that a loop calls are inlined, because real calls would make skip-gram a third slower.
inlined = njit(nogil=True, fastmath=True, cache=True, error_model="numpy", forceinline=True)


@compiled
def negative_sampling(
    dimensions, words, lines, reaches, start, stop, cbow,
    table, units, offsets, scales,
    output, threshold, alias, negatives, lr, state,
):  # fmt: skip
    """Train on the windows around the words `start` to `stop` of a slice of text.

    words, lines, reaches (N,): the slice, as in `WindowSlice`.

    dimensions: a tuple of D times None. A tuple's length is part of its type, so the loops are compiled for this value
    of D. Loops for one value of D are a tenth faster than loops for any D.

    table (U, D), units, offsets (V + 1,), scales (V,): the input of word w is scales[w] · Σ table[units[offsets[w] :
    offsets[w + 1]]]. With `cbow` the mean of the window's inputs predicts the centre; otherwise the centre's input
    predicts each word of the window. output (V, D): the vectors of predicted words. For each pair, `negatives` noise
    words are drawn from the tables `threshold` and `alias`, (V,) each (see `alias_table`), with the generator's `state`
    (1,) uint64.
    """
    hidden, step, gradient = vectors(dimensions, table)
    rows, signs, slopes = outcomes(negatives + 1)
    signs[0], signs[1:] = 1, -1
    loss, n_pairs, bits = 0.0, 0, state[0]
    for i in range(start, stop):
        low, high = window(lines, reaches, i)
        if low == high:
            continue
        first, last = (low, high) if cbow else (i, i)
        gather(hidden, gradient, words, i, first, last, cbow, table, units, offsets, scales)
        likely = 1.0  # product of the pairs' probabilities, so that one logarithm per window is enough
        for j in range(low, high + 1):
            if (j == i) != cbow:
                continue
            rows[0] = words[j]
            for k in range(1, negatives + 1):
                rows[k], bits = draw(threshold, alias, bits)
            likely *= push(hidden, output, step, rows, signs, slopes, negatives + 1, lr)
            follow(hidden, gradient, step, words[i], offsets, scales)
            n_pairs += 1
        scatter(gradient, words, i, first, last, cbow, table, units, offsets, scales)
        loss -= math.log(max(likely, 1e-300))
    state[0] = bits
    return loss, n_pairs


@compiled
def hierarchical_softmax(
    dimensions, words, lines, reaches, start, stop, cbow,
    table, units, offsets, scales,
    output, nodes, codes, lengths, lr,
):  # fmt: skip
    """Train as `negative_sampling` does, but a word's probability is the product of branch probabilities in a tree.

    nodes, codes (V, L) and lengths (V,) are the results of `huffman`.
    """
    hidden, step, gradient = vectors(dimensions, table)
    rows, signs, slopes = outcomes(nodes.shape[1])
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
            target = words[j]
            for k in range(lengths[target]):
                rows[k], signs[k] = nodes[target, k], 1 - 2 * codes[target, k]
            likely = push(hidden, output, step, rows, signs, slopes, lengths[target], lr)
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
    """Train by AdaGrad on cells `start` to `stop` of GloVe's matrix; `words`, `contexts`, `values` (N,) list all cells.

    w and c (V, D) are the word and context vectors; b_w and b_c (V, 1) are the biases of these vectors. The arrays
    `squares_…` contain AdaGrad's sums of squared gradients, one for each weight.
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
def rows_of(words, units, offsets, n_rows):
    """List the rows of the input table from which the inputs of `words` (N,) are computed.

    The table has `n_rows` rows. The result is sorted and contains each row number once.
    """
    among = np.zeros(n_rows, np.bool_)
    for word in words:
        for k in range(offsets[word], offsets[word + 1]):
            among[units[k]] = True
    return np.flatnonzero(among)


@compiled
def copy_rows(to, table, rows):
    for row in rows:
        for d in range(table.shape[1]):
            to[row, d] = table[row, d]


@compiled
def add_changes(table, copies, rows):
    """Add to the rows `rows` of `table` the changes that were made in each of `copies` (C, rows, columns)."""
    for row in rows:
        for d in range(table.shape[1]):
            total = start = table[row, d]
            for c in range(len(copies)):
                total += copies[c, row, d] - start
            table[row, d] = total


@inlined
def window(lines, reaches, i):
    """Find the first and the last word of the window around word i; the window stays within the line of word i."""
    low, high = max(i - reaches[i], 0), min(i + reaches[i], len(lines) - 1)
    while lines[low] != lines[i]:
        low += 1
    while lines[high] != lines[i]:
        high -= 1
    return low, high


@inlined
def vectors(dimensions, table):
    """Allocate three vectors (D,) for intermediate results."""
    d = len(dimensions)
    return np.empty(d, table.dtype), np.empty(d, table.dtype), np.empty(d, table.dtype)


@inlined
def outcomes(n):
    """Allocate arrays for the rows, signs and slopes of n output vectors, which `push` uses."""
    return np.empty(n, np.int64), np.empty(n, np.float32), np.empty(n, np.float32)


@inlined
def follow(hidden, gradient, step, word, offsets, scales):
    """Add a pair's step to `gradient`, and update `hidden`, the input of `word`, as if the table had been updated.

    With CBOW, the updated `hidden` has no effect, because a window's mean input is used for one prediction only.
    """
    share = scales[word] * scales[word] * np.float32(offsets[word + 1] - offsets[word])
    for d in range(len(hidden)):
        gradient[d] += step[d]
        hidden[d] += share * step[d]


@inlined
def gather(hidden, gradient, words, i, first, last, cbow, table, units, offsets, scales):
    """Set `hidden` to the input of word i; with `cbow`, to the mean input of words `first` to `last` without word i.

    `gradient` is set to 0.
    """
    for d in range(len(hidden)):
        hidden[d] = gradient[d] = 0
    for j in range(first, last + 1):
        if cbow and j == i:
            continue
        word = words[j]
        scale = scales[word] / np.float32(max(last - first, 1))
        for k in range(offsets[word], offsets[word + 1]):
            row = units[k]
            for d in range(len(hidden)):
                hidden[d] += scale * table[row, d]


@inlined
def scatter(gradient, words, i, first, last, cbow, table, units, offsets, scales):
    """Update each row of the table that `gather` used: add this row's share of `gradient`."""
    for j in range(first, last + 1):
        if cbow and j == i:
            continue
        word = words[j]
        scale = scales[word] / np.float32(max(last - first, 1))
        for k in range(offsets[word], offsets[word + 1]):
            row = units[k]
            for d in range(len(gradient)):
                table[row, d] += scale * gradient[d]


@inlined
def push(hidden, output, step, rows, signs, slopes, n, rate):
    """Update output[rows[:n]] by a gradient step that makes the signs (1 or −1) of hidden·output[row] more probable.

    The function sets `step` to the gradient step of `hidden`, and returns the probability of all signs before the
    update. A row that occurs twice in `rows` is updated twice, both times with the score from before both updates. The
    array `slopes` (n,) is overwritten.
    """
    for k in range(n):
        row, score = rows[k], np.float32(0)
        for d in range(len(hidden)):
            score += hidden[d] * output[row, d]
        slopes[k] = score
    one, likely = np.float32(1), 1.0
    for k in range(n):
        probability = one / (one + np.exp(-signs[k] * slopes[k]))
        likely *= probability
        slopes[k] = rate * signs[k] * (one - probability)
    for d in range(len(hidden)):
        step[d] = 0
    for k in range(n):
        row, slope = rows[k], slopes[k]
        for d in range(len(hidden)):
            step[d] += slope * output[row, d]
            output[row, d] += slope * hidden[d]
    return likely


@inlined
def draw(threshold, alias, bits):
    """Draw an outcome from the distribution of an `alias_table`; return the outcome, and the generator's next `bits`.

    The generator is Marsaglia's xorshift (2003) on uint64.
    """
    bits ^= bits << np.uint64(13)
    bits ^= bits >> np.uint64(7)
    bits ^= bits << np.uint64(17)
    place = np.int64(((bits >> np.uint64(32)) * np.uint64(len(alias))) >> np.uint64(32))
    other = np.int64(alias[place])
    # The choice is computed without a branch, because the processor could not predict the branch. With a branch,
    # skip-gram takes 40 % longer.
    own = np.int64(np.uint32(bits & np.uint64(0xFFFFFFFF)) < threshold[place])
    return other + own * (place - other), bits


@compiled
def draw_many(threshold, alias, state, n):
    """Draw `n` outcomes, (n,) int64; `state` (1,) uint64 is the state of the random generator."""
    drawn, bits = np.empty(n, np.int64), state[0]
    for i in range(n):
        drawn[i], bits = draw(threshold, alias, bits)
    state[0] = bits
    return drawn


def alias_table(probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute `threshold` (V,) uint32 and `alias` (V,) int32, the tables of Walker's alias method (1977; Vose 1991).

    To draw an outcome, choose v uniformly from 0 to V − 1: the outcome is v with probability threshold[v] / 2³²,
    otherwise alias[v]. A draw takes constant time, and the tables take 8 bytes per word. In word2vec.c, one table of
    400 MB is used, and each word's share of the entries is its probability, rounded to whole entries.
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
