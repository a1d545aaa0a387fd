"""Compiled loops of stochastic gradient descent on word vectors, one window or cell after the other.

Each loop makes a plain gradient step of its objective for one pair after the other, as word2vec.c does. All scores of a
pair are computed before any of its vectors changes, so that the processor does not wait for one score to start the
next. The loops release the interpreter's lock and change the tables in place. They return the summed loss in nats, and
the number of pairs (cells) in the sum.

N words of a slice, V vocabulary, U rows of the input table, D dimensions.
"""

import math

import numpy as np
from numba import njit

# fastmath allows sums in vector instructions; error_model="numpy" avoids a test for zero at every division.
compiled = njit(nogil=True, fastmath=True, cache=True, error_model="numpy")
# Functions within a loop are inlined: calls would cost a third of skip-gram's speed.
inlined = njit(nogil=True, fastmath=True, cache=True, error_model="numpy", forceinline=True)


@compiled
def negative_sampling(
    dimensions, words, lines, reaches, start, stop, cbow,
    table, units, offsets, scales,
    output, threshold, alias, negatives, lr, state,
):  # fmt: skip
    """Train on the windows around places `start` to `stop` of a slice: words, lines, reaches (N,).

    dimensions: a tuple of D times None. A tuple's length is part of its type, so the loops are compiled for one D,
    which makes them a tenth faster.

    table (U, D), units, offsets (V + 1,), scales (V,): the input of word w is scales[w] · Σ table[units[offsets[w] :
    offsets[w + 1]]]. With `cbow` the mean of the window's inputs predicts the centre; otherwise the centre's input
    predicts each word of the window. output (V, D): the vectors of predicted words. For each pair, `negatives` noise
    words are drawn from threshold and alias (V,) (see `alias_table`) with the generator's `state` (1,) uint64.
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
        likely = 1.0  # product of probabilities, for only one logarithm per window
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
    """Train as `negative_sampling` does, but with a word's probability as the product along its path in a tree.

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
    """Train on cells `start` to `stop` of GloVe's matrix by AdaGrad: words, contexts, values (N,).

    w, c (V, D) are word and context vectors, and b_w, b_c (V, 1) their biases. The arrays `squares_…` have the same
    shapes and contain AdaGrad's sums of squared gradients.
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

    The table has `n_rows` rows. The list is sorted and contains each row once.
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
    """Add the changes in each of `copies` (C, rows, columns) to `rows` of the table."""
    for row in rows:
        for d in range(table.shape[1]):
            total = start = table[row, d]
            for c in range(len(copies)):
                total += copies[c, row, d] - start
            table[row, d] = total


@inlined
def window(lines, reaches, i):
    """Find the first and the last place of the window around place i; the window does not leave the line of i."""
    low, high = max(i - reaches[i], 0), min(i + reaches[i], len(lines) - 1)
    while lines[low] != lines[i]:
        low += 1
    while lines[high] != lines[i]:
        high -= 1
    return low, high


@inlined
def vectors(dimensions, table):
    """Create three vectors (D,) as workspace."""
    d = len(dimensions)
    return np.empty(d, table.dtype), np.empty(d, table.dtype), np.empty(d, table.dtype)


@inlined
def outcomes(n):
    """Create workspace for the rows, signs and slopes of n output vectors, see `push`."""
    return np.empty(n, np.int64), np.empty(n, np.float32), np.empty(n, np.float32)


@inlined
def follow(hidden, gradient, step, word, offsets, scales):
    """Add a pair's step to `gradient`, and update `hidden`, the input of `word`, as if its rows had made that step.

    With CBOW the updated `hidden` has no effect, because a window's mean input predicts only one word.
    """
    share = scales[word] * scales[word] * np.float32(offsets[word + 1] - offsets[word])
    for d in range(len(hidden)):
        gradient[d] += step[d]
        hidden[d] += share * step[d]


@inlined
def gather(hidden, gradient, words, i, first, last, cbow, table, units, offsets, scales):
    """Set `hidden` to the input at place i, or with `cbow` to the mean input of places first to last except i.

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
    """Add to every row that `gather` read the row's share of `gradient`."""
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
    """Move output[rows[:n]] by a gradient step that makes the signs (1 or −1) of hidden·output[row] more probable.

    Sets `step` to the gradient step of `hidden`, and returns the probability of all signs before the move. A row that
    occurs twice moves twice, both times by its score before the move. `slopes` (n,) is workspace.
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
    """Draw an outcome of `alias_table`'s distribution, and return it with the next `bits`.

    The generator is Marsaglia's xorshift (2003) on uint64.
    """
    bits ^= bits << np.uint64(13)
    bits ^= bits >> np.uint64(7)
    bits ^= bits << np.uint64(17)
    place = np.int64(((bits >> np.uint64(32)) * np.uint64(len(alias))) >> np.uint64(32))
    other = np.int64(alias[place])
    # There is no branch here, because the processor could not predict it: with a branch, skip-gram takes 40 % longer.
    own = np.int64(np.uint32(bits & np.uint64(0xFFFFFFFF)) < threshold[place])
    return other + own * (place - other), bits


@compiled
def draw_many(threshold, alias, state, n):
    """Draw `n` outcomes, (n,) int64, by the generator `state` (1,) uint64."""
    drawn, bits = np.empty(n, np.int64), state[0]
    for i in range(n):
        drawn[i], bits = draw(threshold, alias, bits)
    state[0] = bits
    return drawn


def alias_table(probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute threshold (V,) uint32 and alias (V,) int32 of Walker's alias method (1977; Vose 1991).

    To draw, choose a place v uniformly: the outcome is v with probability threshold[v] / 2³², otherwise alias[v]. A
    draw takes constant time, and the table 8 bytes per word. word2vec.c instead uses a table of 400 MB, and rounds the
    probabilities to multiples of one entry.
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
