"""L-BFGS in numpy, with the line search of Moré and Thuente (1994), "Line search algorithms with guaranteed sufficient
decrease". It takes the steps of L-BFGS-B without bounds, so that two runs of 100 steps can be compared.
"""

import numpy as np

DECREASE, CURVATURE, WIDTH = 1e-3, 0.9, 0.1  # L-BFGS-B's tolerances of the line search


def lbfgs(f, x, steps, memory=10):
    """Return the point after a number of steps from x; f returns a value and its gradient."""
    value, gradient = f(x)
    moves, changes = [], []
    for _ in range(steps):
        direction, products = -gradient, []
        for s, y in zip(reversed(moves), reversed(changes), strict=True):
            products.append(s @ direction / (s @ y))
            direction = direction - products[-1] * y
        if moves:
            direction = direction * (moves[-1] @ changes[-1]) / (changes[-1] @ changes[-1])
        for s, y, product in zip(moves, changes, reversed(products), strict=True):
            direction = direction + s * (product - y @ direction / (s @ y))
        first = 1.0 if moves else 1 / np.linalg.norm(direction)
        t, value, after = _searched(f, x, direction, value, gradient @ direction, first)
        moves, changes = [*moves, t * direction][-memory:], [*changes, after - gradient][-memory:]
        x, gradient = x + t * direction, after
    return x


def _searched(f, x, direction, value, slope, t):
    """Return a step length that decreases the value enough, and the value and the gradient there."""
    best = other = (0.0, value, slope)  # (step length, value, slope) at the two ends of the interval
    bracketed, modified, low, high = False, True, 0.0, 5 * t
    width = before = np.inf
    while True:
        there, gradient = f(x + t * direction)
        new = (t, there, gradient @ direction)
        enough = there <= value + DECREASE * t * slope
        modified = modified and not (enough and new[2] >= 0)
        settled = bracketed and (not low < t < high or high - low <= WIDTH * high)
        if settled or (enough and abs(new[2]) <= -CURVATURE * slope):
            return t, there, gradient
        tilt = DECREASE * slope if modified and there <= best[1] and not enough else 0.0
        best, other, new = ((a, b - a * tilt, c - tilt) for a, b, c in (best, other, new))
        t, bracketed = _next(best, other, new, bracketed, low, high)
        if new[1] > best[1]:
            other = new
        else:
            best, other = new, best if new[2] * best[2] < 0 else other
        best, other = ((a, b + a * tilt, c + tilt) for a, b, c in (best, other))
        if not bracketed:
            low, high = t + 1.1 * (t - best[0]), t + 4 * (t - best[0])
            continue
        if abs(other[0] - best[0]) >= 0.66 * before:
            t = best[0] + 0.5 * (other[0] - best[0])
        before, width = width, abs(other[0] - best[0])
        low, high = sorted((best[0], other[0]))
        if not low < t < high or high - low <= WIDTH * high:
            t = best[0]


def _next(best, other, new, bracketed, low, high):
    """Return the next step length, by cubic and quadratic interpolation, and whether the minimum is bracketed."""
    (a, fa, da), (b, fb, db) = best, new
    if fb > fa:
        cubic, quadratic = _minimum(new, best), a + da / ((fa - fb) / (b - a) + da) / 2 * (b - a)
        return cubic if abs(cubic - a) < abs(quadratic - a) else cubic + (quadratic - cubic) / 2, True
    if da * db >= 0 and abs(db) >= abs(da):
        return _minimum(other, new) if bracketed else high if b > a else low, bracketed
    cubic, secant = _minimum(best, new), b + db / (db - da) * (a - b)
    if da * db < 0:
        return max(cubic, secant, key=lambda t: abs(t - b)), True
    if (cubic - b) * (b - a) < 0:
        cubic = high if b > a else low
    if not bracketed:
        return np.clip(max(cubic, secant, key=lambda t: abs(t - b)), low, high), False
    t, limit = min(cubic, secant, key=lambda t: abs(t - b)), b + 0.66 * (other[0] - b)
    return (min if b > a else max)(limit, t), True


def _minimum(start, end):
    """Return the minimum of the cubic with the values and slopes of two points, computed from the second."""
    (a, fa, da), (b, fb, db) = start, end
    theta = 3 * (fa - fb) / (b - a) + da + db
    root = np.sqrt(max(0.0, theta**2 - da * db)) * np.sign(b - a)
    return b - (root + db - theta) / (2 * root + db - da) * (b - a)
