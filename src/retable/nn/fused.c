/* The kernels that fused.py calls: element-wise operations in bf16, in one pass over memory.
 *
 * Numbers are read as bf16, computed in fp32, and rounded to nearest, ties to even. Loops over rows and blocks run on
 * torch's threads: the file is compiled with -fopenmp but not linked with the library, so that it uses torch's own. A
 * second set of threads would compete with torch's idle threads, which spin. Each number is computed by one thread, in
 * an order that does not depend on the number of threads. */

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__gnu_linux__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif
#define INLINE static inline __attribute__((always_inline))

typedef uint16_t bf16;

INLINE float widen(bf16 x) {
    uint32_t bits = (uint32_t)x << 16;
    float wide;
    memcpy(&wide, &bits, 4);
    return wide;
}

INLINE bf16 narrow(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (bf16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* e^x with a relative error of 2e-7, for x clamped to -87 to 87: 2^n times a polynomial (Moshier's Cephes, expf) in the
 * remainder of x. Ternaries, unlike fminf, compile to vector minima. */
INLINE float exponential(float x) {
    x = x < -87.0f ? -87.0f : x > 87.0f ? 87.0f : x;
    float n = rintf(x * 1.44269504f);
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t bits = ((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, 4);
    return p * scale;
}

INLINE float logit(const bf16 *row, const float *bias, int64_t j) { return widen(row[j]) + (bias ? bias[j] : 0); }

INLINE float softmax_row_of(bf16 *row, const float *bias, int64_t label, int64_t n, float *total) {
    float top = logit(row, bias, 0), sum = 0;
    for (int64_t j = 1; j < n; j++) top = logit(row, bias, j) > top ? logit(row, bias, j) : top;
    float of_label = logit(row, bias, label) - top;
    for (int64_t j = 0; j < n; j++) {
        float e = exponential(logit(row, bias, j) - top);
        sum += e;
        row[j] = narrow(e);
    }
    row[label] = narrow(exponential(of_label) - sum);
    *total = sum;
    return logf(sum) - of_label;
}

FOR_EACH_PROCESSOR
static float softmax_row(bf16 *row, const float *bias, int64_t label, int64_t n, float *total) {
    return bias ? softmax_row_of(row, bias, label, n, total) : softmax_row_of(row, 0, label, n, total);
}

/* Overwrites logits (rows, n), after adding bias (n) if any, with the gradients of their cross-entropy times the
 * softmax's denominators, total (rows). losses (rows) are -log softmax[label]. */
void cross_entropy(bf16 *logits, const float *bias, const int64_t *labels, int64_t rows, int64_t n, float *losses,
                   float *total) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; i++) losses[i] = softmax_row(logits + i * n, bias, labels[i], n, total + i);
}

#define BLOCK 4096
#define MOST 4096

FOR_EACH_PROCESSOR
static void add_columns(const bf16 *rows, const float *shares, int64_t n_rows, int64_t n, int64_t width, float *sums) {
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t j = 0; j < width; j++) sums[j] += shares[i] * widen(rows[i * n + j]);
}

/* Adds the column sums of rows (n_rows, n), each times its share, to sums (n). */
void column_sums(const bf16 *rows, const float *shares, int64_t n_rows, int64_t n, float *sums) {
#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < n; j += BLOCK)
        add_columns(rows + j, shares, n_rows, n, n - j < BLOCK ? n - j : BLOCK, sums + j);
}

/* The normal distribution function at v, 1/2 erfc(-v / sqrt 2), with an error of 1.5e-7 (Abramowitz and Stegun 1964,
 * equation 7.1.26), and its density. */
INLINE float normal(float v, float *density) {
    float bell = exponential(-0.5f * v * v);
    float a = v < 0 ? -v : v;
    float t = 1.0f / (1.0f + 0.3275911f * 0.70710678f * a);
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    float beyond = 0.5f * p * t * bell;
    *density = 0.39894228f * bell;
    return v < 0 ? beyond : 1.0f - beyond;
}

/* The factor of x in GELU with tanh, 1/2 (1 + tanh u) = 1 / (1 + exp(-2u)), and its derivative. */
INLINE float logistic(float v, float *slope) {
    float s = 1.0f / (1.0f + exponential(-1.5957691216f * (v + 0.044715f * v * v * v)));
    *slope = s * (1.0f - s) * (1.5957691216f + 0.2140644488f * v * v);
    return s;
}

FOR_EACH_PROCESSOR
static void gelu_block(const bf16 *x, bf16 *y, int64_t n, int with_tanh) {
    float slope;
    if (with_tanh)
        for (int64_t i = 0; i < n; i++) y[i] = narrow(widen(x[i]) * logistic(widen(x[i]), &slope));
    else
        for (int64_t i = 0; i < n; i++) y[i] = narrow(widen(x[i]) * normal(widen(x[i]), &slope));
}

FOR_EACH_PROCESSOR
static void gelu_slopes_block(const bf16 *x, const bf16 *dy, bf16 *dx, int64_t n, int with_tanh) {
    if (with_tanh)
        for (int64_t i = 0; i < n; i++) {
            float v = widen(x[i]), slope, share = logistic(v, &slope);
            dx[i] = narrow(widen(dy[i]) * (share + v * slope));
        }
    else
        for (int64_t i = 0; i < n; i++) {
            float v = widen(x[i]), slope, share = normal(v, &slope);
            dx[i] = narrow(widen(dy[i]) * (share + v * slope));
        }
}

/* GELU of x (n); with tanh, as in GPT, or without. */
void gelu(const bf16 *x, bf16 *y, int64_t n, int with_tanh) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i += BLOCK) gelu_block(x + i, y + i, n - i < BLOCK ? n - i : BLOCK, with_tanh);
}

/* The gradient dx (n) by the input, from the gradient dy by the output. */
void gelu_slopes(const bf16 *x, const bf16 *dy, bf16 *dx, int64_t n, int with_tanh) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i += BLOCK)
        gelu_slopes_block(x + i, dy + i, dx + i, n - i < BLOCK ? n - i : BLOCK, with_tanh);
}

FOR_EACH_PROCESSOR
static void softmax_weights(bf16 *row, const float *bias, float scale, int64_t n) {
    float top = -FLT_MAX, sum = 0;
    float wide[MOST];
    for (int64_t j = 0; j < n; j++) {
        wide[j] = widen(row[j]) * scale + (bias ? bias[j] : 0);
        top = wide[j] > top ? wide[j] : top;
    }
    for (int64_t j = 0; j < n; j++) {
        wide[j] = exponential(wide[j] - top);
        sum += wide[j];
    }
    for (int64_t j = 0; j < n; j++) row[j] = narrow(wide[j] / sum);
}

/* Overwrites scores (rows, heads, queries, n) with the attention's weights, after multiplying by scale and adding a
 * bias, if any, whose strides by row, head and query are given. n is at most MOST. */
void attention_weights(bf16 *scores, const float *bias, const int64_t *strides, float scale, int64_t rows, int64_t heads,
                       int64_t queries, int64_t n) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows * heads * queries; i++) {
        int64_t row = i / (heads * queries), head = i / queries % heads, query = i % queries;
        const float *its = bias ? bias + row * strides[0] + head * strides[1] + query * strides[2] : 0;
        softmax_weights(scores + i * n, its, scale, n);
    }
}

FOR_EACH_PROCESSOR
static void softmax_slopes(const bf16 *weights, bf16 *slopes, float scale, int64_t n) {
    float mean = 0;
    for (int64_t j = 0; j < n; j++) mean += widen(weights[j]) * widen(slopes[j]);
    for (int64_t j = 0; j < n; j++) slopes[j] = narrow(widen(weights[j]) * (widen(slopes[j]) - mean) * scale);
}

/* Overwrites the loss's gradients (rows, n) by a softmax's weights with those by its scores, times scale. */
void attention_slopes(const bf16 *weights, bf16 *slopes, float scale, int64_t rows, int64_t n) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; i++) softmax_slopes(weights + i * n, slopes + i * n, scale, n);
}

FOR_EACH_PROCESSOR
static float rms_norm_row(const float *x, const float *scale, bf16 *y, float eps, int64_t n) {
    float squares = 0;
    for (int64_t j = 0; j < n; j++) squares += x[j] * x[j];
    float inverse = 1.0f / sqrtf(squares / n + eps);
    for (int64_t j = 0; j < n; j++) y[j] = narrow(x[j] * inverse * scale[j]);
    return inverse;
}

/* y (rows, n) is x divided by its root mean square, times scale (n). inverse (rows) is 1 over the divisor. */
void rms_norm(const float *x, const float *scale, bf16 *y, float *inverse, float eps, int64_t rows, int64_t n) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; i++) inverse[i] = rms_norm_row(x + i * n, scale, y + i * n, eps, n);
}

FOR_EACH_PROCESSOR
static void rms_norm_slopes_row(const float *x, const float *scale, const bf16 *dy, float *dx, float inverse, int64_t n) {
    float along = 0;
    for (int64_t j = 0; j < n; j++) along += widen(dy[j]) * scale[j] * x[j];
    along *= inverse * inverse / n;
    for (int64_t j = 0; j < n; j++) dx[j] = inverse * (widen(dy[j]) * scale[j] - along * x[j]);
}

#define COLUMNS 64

FOR_EACH_PROCESSOR
static void rms_norm_scale_slopes(const float *x, const bf16 *dy, const float *inverse, int64_t rows, int64_t n,
                                  int64_t width, float *d_scale) {
    for (int64_t j = 0; j < width; j++) d_scale[j] = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < width; j++) d_scale[j] += widen(dy[i * n + j]) * x[i * n + j] * inverse[i];
}

/* The gradients by x and by scale (n), from the gradient by the output, dy (rows, n). */
void rms_norm_slopes(const float *x, const float *scale, const bf16 *dy, const float *inverse, float *dx, float *d_scale,
                     int64_t rows, int64_t n) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; i++) rms_norm_slopes_row(x + i * n, scale, dy + i * n, dx + i * n, inverse[i], n);
#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < n; j += COLUMNS)
        rms_norm_scale_slopes(x + j, dy + j, inverse, rows, n, n - j < COLUMNS ? n - j : COLUMNS, d_scale + j);
}

/* A bijection of 32 bits in which each bit changes half of the others (Wellons, "Prospecting for hash functions"). */
INLINE uint32_t mixed(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

/* Whether the number at place i is kept; the probability to drop it is dropped / 2^32. */
INLINE int stays(uint32_t i, uint64_t seed, uint32_t dropped) {
    return mixed(mixed(i ^ (uint32_t)seed) + (uint32_t)(seed >> 32)) >= dropped;
}

FOR_EACH_PROCESSOR
static void dropout_block(const void *x, void *y, int64_t start, int64_t n, uint64_t seed, uint32_t dropped,
                          float scale, int wide) {
    const float *wide_x = (const float *)x + start;
    const bf16 *narrow_x = (const bf16 *)x + start;
    float *wide_y = (float *)y + start;
    bf16 *narrow_y = (bf16 *)y + start;
    if (wide)
        for (int32_t i = 0; i < n; i++)
            wide_y[i] = stays((uint32_t)start + i, seed, dropped) ? wide_x[i] * scale : 0.0f;
    else
        for (int32_t i = 0; i < n; i++)
            narrow_y[i] = stays((uint32_t)start + i, seed, dropped) ? narrow(widen(narrow_x[i]) * scale) : 0;
}

/* y (n) is x times scale where it is kept, otherwise 0; both are bf16, or fp32 if wide. */
void dropout(const void *x, void *y, int64_t n, uint64_t seed, uint32_t dropped, float scale, int wide) {
#pragma omp parallel for schedule(static) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        dropout_block(x, y, i, n - i < BLOCK ? n - i : BLOCK, seed, dropped, scale, wide);
}

INLINE float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }
INLINE float hyperbolic_tangent(float x) { return 2.0f * sigmoid(2.0f * x) - 1.0f; }

FOR_EACH_PROCESSOR
static void lstm_row(bf16 *restrict gates, const bf16 *restrict recurrent, const float *restrict bias,
                     const float *restrict before, float *restrict cell, bf16 *restrict hidden, int64_t n) {
    for (int64_t j = 0; j < n; j++) {
        float i = sigmoid(widen(gates[j]) + widen(recurrent[j]) + bias[j]);
        float f = sigmoid(widen(gates[n + j]) + widen(recurrent[n + j]) + bias[n + j]);
        float g = hyperbolic_tangent(widen(gates[2 * n + j]) + widen(recurrent[2 * n + j]) + bias[2 * n + j]);
        float o = sigmoid(widen(gates[3 * n + j]) + widen(recurrent[3 * n + j]) + bias[3 * n + j]);
        cell[j] = f * before[j] + i * g;
        hidden[j] = narrow(o * hyperbolic_tangent(cell[j]));
        gates[j] = narrow(i);
        gates[n + j] = narrow(f);
        gates[2 * n + j] = narrow(g);
        gates[3 * n + j] = narrow(o);
    }
}

FOR_EACH_PROCESSOR
static void lstm_slopes_row(bf16 *restrict gates, const float *restrict before, const float *restrict cell,
                            const bf16 *restrict above, const bf16 *restrict later, float *restrict d_cell, int64_t n) {
    for (int64_t j = 0; j < n; j++) {
        float i = widen(gates[j]), f = widen(gates[n + j]), g = widen(gates[2 * n + j]), o = widen(gates[3 * n + j]);
        float out = hyperbolic_tangent(cell[j]), d_hidden = widen(above[j]) + widen(later[j]);
        float d = d_cell[j] + d_hidden * o * (1.0f - out * out);
        gates[j] = narrow(d * g * i * (1.0f - i));
        gates[n + j] = narrow(d * before[j] * f * (1.0f - f));
        gates[2 * n + j] = narrow(d * i * (1.0f - g * g));
        gates[3 * n + j] = narrow(d_hidden * out * o * (1.0f - o));
        d_cell[j] = d * f;
    }
}

#define FEW 8192 /* numbers that one thread finishes before another could start */

/* A step of an LSTM. Overwrites gates (rows, 4n), the input's contribution to the input, forget, cell and output gates,
 * with their values, after adding recurrent (rows, 4n) and bias (4n). before (rows, n) are the previous cells. */
void lstm_step(bf16 *gates, const bf16 *recurrent, const float *bias, const float *before, float *cell, bf16 *hidden,
               int64_t rows, int64_t n) {
#pragma omp parallel for schedule(static) if (4 * rows * n > FEW)
    for (int64_t r = 0; r < rows; r++)
        lstm_row(gates + 4 * r * n, recurrent + 4 * r * n, bias, before + r * n, cell + r * n, hidden + r * n, n);
}

/* Overwrites the gates' values with their gradients, from the gradients by the hidden states in the layer above and in
 * the next step, and by the cells, d_cell (rows, n), which is overwritten with the gradient by the previous cells. */
void lstm_step_slopes(bf16 *gates, const float *before, const float *cell, const bf16 *above, const bf16 *later,
                      float *d_cell, int64_t rows, int64_t n) {
#pragma omp parallel for schedule(static) if (4 * rows * n > FEW)
    for (int64_t r = 0; r < rows; r++)
        lstm_slopes_row(gates + 4 * r * n, before + r * n, cell + r * n, above + r * n, later + r * n, d_cell + r * n, n);
}
