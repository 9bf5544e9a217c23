/* Proves: gradients of every kind of parameter equal finite differences of the loss along random directions,
 * for tied and untied embeddings and for one and several key heads. 16-bit operands change gradients only a
 * little. Checkpoints and the number of threads do not change a bit. Two half batches equal a whole one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/train/network.h"
#include "tests/check.h"
#include "engine/config/config.h"

static const struct network_shape SMALL = { .layers = 3,
                                            .heads = 4,
                                            .kv_heads = 2,
                                            .ctx = 24,
                                            .embd = 32,
                                            .ff = 48,
                                            .vocab = 80,
                                            .tied = true,
                                            .rope_base = 10000,
                                            .eps = 1e-5f };

struct trial {
    struct network *n;
    int32_t *tokens, *targets;
};

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static struct network_options options_of(struct network_shape shape)
{
    struct network_options o = { .shape = shape, .batch = 3, .threads = 2 };
    struct err why = { 0 };
    CHECK_OK(isa_usable(&o.isa, &why));
    return o;
}

static void trial_open(struct trial *t, const struct network_options *o)
{
    struct err why = { 0 };
    uint64_t state = 5;
    const int count = o->batch * o->shape.ctx;
    CHECK_OK(network_open(&t->n, o, &why));
    CHECK_OK(network_randomize(t->n, 3, &why));
    t->tokens = malloc((size_t)count * sizeof *t->tokens);
    t->targets = malloc((size_t)count * sizeof *t->targets);
    CHECK(t->tokens);
    CHECK(t->targets);
    for (int i = 0; i < count; i++) {
        t->tokens[i] = (int32_t)(next(&state) % (uint64_t)o->shape.vocab);
        t->targets[i] = i % 7 == 3 ? -1 : (int32_t)(next(&state) % (uint64_t)o->shape.vocab);
    }
    /* Larger weights than at the start of training, so that softmax and gates are nonlinear; norms differ. */
    float *w = network_weights(t->n);
    for (int64_t i = 0; i < network_params(t->n); i++)
        w[i] = w[i] == 1 ? 0.8f + 0.4f * (float)(next(&state) % 1000) / 1000 : w[i] * 6;
    network_changed(t->n);
}

static void trial_close(struct trial *t)
{
    network_close(t->n);
    free(t->tokens);
    free(t->targets);
}

static double gradients(struct trial *t, float scale)
{
    memset(network_gradients(t->n), 0, (size_t)network_params(t->n) * sizeof(float));
    return network_backward(t->n, t->tokens, t->targets, scale);
}

/* Directional derivative of the loss within one tensor, by central differences. */
static double slope(struct trial *t, const struct network_tensor *at, const float *direction, float step)
{
    float *w = network_weights(t->n) + at->offset;
    const int64_t count = at->rows * at->cols;
    double loss[2];
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < count; i++) w[i] += (side ? -2 : 1) * step * direction[i];
        network_changed(t->n);
        loss[side] = network_forward(t->n, t->tokens, t->targets);
    }
    for (int64_t i = 0; i < count; i++) w[i] += step * direction[i];
    network_changed(t->n);
    return (loss[0] - loss[1]) / (2 * (double)step);
}

static void check_slopes(const struct network_options *o, double tolerance)
{
    struct trial t;
    uint64_t state = 11;
    trial_open(&t, o);
    float *saved = malloc((size_t)network_params(t.n) * sizeof *saved), *direction = malloc(1 << 16);
    CHECK(saved);
    CHECK(direction);
    gradients(&t, 1);
    memcpy(saved, network_gradients(t.n), (size_t)network_params(t.n) * sizeof *saved);
    for (int i = 0; i < network_tensor_count(t.n); i++) {
        const struct network_tensor *at = network_tensor_at(t.n, i);
        const int64_t count = at->rows * at->cols;
        double along = 0, length = 0;
        if (!count) continue;
        for (int64_t j = 0; j < count;
             j++) { /* half gradient, half random: not orthogonal to the gradient, and not only its length */
            direction[j] = next(&state) % 2 ? 1 : -1;
            along += (double)direction[j] * (double)saved[at->offset + j];
            length += pow((double)saved[at->offset + j], 2);
        }
        CHECK_LT(0, length);
        const double by = along < 0 ? -1 : 1, root = sqrt(length / (double)count);
        for (int64_t j = 0; j < count; j++)
            direction[j] = 0.5f * direction[j] * (float)by + 0.5f * saved[at->offset + j] / (float)root;
        double want = 0;
        for (int64_t j = 0; j < count; j++) want += (double)direction[j] * (double)saved[at->offset + j];
        const double got = slope(&t, at, direction, 2e-3f / sqrtf((float)at->cols));
        if (!(fabs(got - want) <= tolerance * fabs(want)))
            fail_msg("%s: slope %.6g, gradient says %.6g", at->name, got, want);
    }
    free(saved);
    free(direction);
    trial_close(&t);
}

static void gradients_are_slopes(void **state)
{
    (void)state;
    struct network_options o = options_of(SMALL);
    check_slopes(&o, 2e-3);
    o.shape.tied = false;
    check_slopes(&o, 2e-3);
    o.shape.kv_heads = 1;
    o.checkpoint_every = 2;
    check_slopes(&o, 2e-3);
    o.shape.kv_heads = 4;
    o.shape.ctx = 37; /* a prime: not a multiple of any block */
    check_slopes(&o, 2e-3);
}

static double difference(const float *a, const float *b, int64_t n)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        error += pow((double)a[i] - (double)b[i], 2);
        size += pow((double)a[i], 2);
    }
    return sqrt(error / size);
}

static void rounding_changes_little(void **state)
{
    (void)state;
    static const double MOST[] = {
        [AMP_BF16] = 3e-2, [AMP_FP16] = 4e-3
    }; /* relative rounding errors of 2^-9 and 2^-12 in each product */
    struct network_options o = options_of(SMALL);
    struct trial exact;
    trial_open(&exact, &o);
    const double loss = gradients(&exact, 1);
    for (int amp = AMP_BF16; amp < AMP_COUNT; amp++) {
        struct trial t;
        o.amp = (enum amp)amp;
        trial_open(&t, &o);
        CHECK_NEAR(gradients(&t, 1), loss, loss * MOST[amp]);
        const double d = difference(network_gradients(exact.n), network_gradients(t.n), network_params(t.n));
        CHECK_LT(d, MOST[amp]);
        CHECK_LT(1e-5, d);
        trial_close(&t);
    }
    trial_close(&exact);
}

static void same_bits(const struct network_options *a, const struct network_options *b)
{
    struct trial one, other;
    trial_open(&one, a);
    trial_open(&other, b);
    CHECK_NEAR(gradients(&one, 0.5f), gradients(&other, 0.5f), 0);
    assert_memory_equal(network_gradients(one.n), network_gradients(other.n),
                        (size_t)network_params(one.n) * sizeof(float));
    trial_close(&one);
    trial_close(&other);
}

static void threads_and_checkpoints_change_no_bit(void **state)
{
    (void)state;
    for (int amp = 0; amp < AMP_COUNT; amp++) {
        struct network_options o = options_of(SMALL), p;
        o.amp = (enum amp)amp;
        p = o;
        p.threads = 3;
        same_bits(&o, &p);
        p.threads = 1;
        p.checkpoint_every = 1;
        same_bits(&o, &p);
        p.checkpoint_every = 2;
        same_bits(&o, &p);
        p.checkpoint_every = 3;
        same_bits(&o, &p);
    }
}

static void checkpoints_save_memory(void **state)
{
    (void)state;
    struct network_options o = options_of(SMALL);
    struct err why = { 0 };
    struct network *n;
    int64_t before = 0;
    o.shape.layers = 8;
    for (int every = 0; every < 3; every += 2) {
        o.checkpoint_every = every;
        CHECK_OK(network_open(&n, &o, &why));
        const int64_t bytes = network_memory(n).activations;
        if (every) CHECK_LT(bytes, before * 7 / 10);
        before = bytes;
        network_close(n);
    }
}

/* Gradients accumulate, and positions without a target do not contribute. */
static void halves_make_a_whole(void **state)
{
    (void)state;
    struct network_options o = options_of(SMALL), p = o;
    struct trial whole, half;
    o.batch = 2;
    p.batch = 1;
    trial_open(&whole, &o);
    trial_open(&half, &p);
    memcpy(network_weights(half.n), network_weights(whole.n),
           (size_t)network_params(whole.n) * sizeof(float));
    network_changed(half.n);
    const double loss = gradients(&whole, 1);
    memset(network_gradients(half.n), 0, (size_t)network_params(half.n) * sizeof(float));
    const double first = network_backward(half.n, whole.tokens, whole.targets, 1);
    const double second = network_backward(half.n, whole.tokens + o.shape.ctx, whole.targets + o.shape.ctx,
                                           1);
    CHECK_NEAR(first + second, loss, loss * 1e-6);
    CHECK_LT(difference(network_gradients(whole.n), network_gradients(half.n), network_params(half.n)), 1e-5);
    for (int i = 0; i < 2 * o.shape.ctx; i++)
        if (whole.targets[i] >= 0) whole.targets[i] = -1;
    CHECK_NEAR(gradients(&whole, 1), 0, 0);
    for (int64_t i = 0; i < network_params(whole.n); i++) CHECK_NEAR(network_gradients(whole.n)[i], 0, 0);
    trial_close(&whole);
    trial_close(&half);
}

static void refuses_what_cannot_be(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct network *n;
    struct network_options o = options_of(SMALL);
    o.shape.kv_heads = 3;
    assert_int_equal(network_open(&n, &o, &why), ERR_USAGE);
    CHECK_EQ(n, NULL);
    o = options_of(SMALL);
    o.checkpoint_every = 4;
    assert_int_equal(network_open(&n, &o, &why), ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(rounding_changes_little),
        cmocka_unit_test(threads_and_checkpoints_change_no_bit),
        cmocka_unit_test(checkpoints_save_memory),
        cmocka_unit_test(halves_make_a_whole),
        cmocka_unit_test(refuses_what_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
