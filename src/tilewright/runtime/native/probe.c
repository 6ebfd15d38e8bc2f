/* probe.c: the two peaks of a roofline, measured on a session's threads: f32 multiply-adds with all
 * operands in registers, and reads of a buffer larger than the caches. */
#include "internal.h"

#include <string.h>

#define FLOP_ROUNDS 40000               /* per item: about half a millisecond */
#define ITEMS_PER_THREAD 24
#define READ_BYTES ((int64_t)192 << 20)
#define READ_ITEM ((int64_t)1 << 20)

/* Ten independent chains, each in a register of its own, hide the latency of two units. */
#define CHAINS 10
#define EACH(x) x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7) x(8) x(9)
#define START(i) a##i = c * (i + 1.0f),
#define MULTIPLY_ADD(i) a##i = MADD(a##i, b, c);
#define SUM(i) total += a##i;
#define MULTIPLY_ADDS(vector)                                                           \
    vector b = (vector){0} + seed * 0.5f, c = (vector){0} + seed, EACH(START) total = c;\
    for (int64_t round = 0; round < FLOP_ROUNDS; round++) {                             \
        EACH(MULTIPLY_ADD)                                                              \
        __asm__ volatile("" ::: "memory");                                              \
    }                                                                                   \
    EACH(SUM)                                                                           \
    return total[0];

typedef float f32x4 __attribute__((vector_size(16)));
#define MADD(a, b, c) ((a) * (b) + (c))
static float burn_plain(float seed) { MULTIPLY_ADDS(f32x4) }
#undef MADD

#if defined(__x86_64__)
#include <immintrin.h>
#define MADD _mm256_fmadd_ps
__attribute__((target("avx2,fma"))) static float burn_avx2(float seed) { MULTIPLY_ADDS(__m256) }
#undef MADD
#define MADD _mm512_fmadd_ps
__attribute__((target("avx512f"))) static float burn_avx512(float seed) { MULTIPLY_ADDS(__m512) }
#endif

typedef struct burn {
    float (*function)(float);
    int lanes;
    atomic_int sink;                    /* so that the work is not removed */
} burn;

static void burn_items(void *context, int32_t thread, int64_t begin, int64_t end) {
    burn *b = context;
    (void)thread;
    for (int64_t i = begin; i < end; i++) atomic_fetch_add(&b->sink, b->function(1.0f) > 0);
}

static burn choose_burn(void) {
#if defined(__x86_64__)
    if (tw_cpu_has("avx512f")) return (burn){burn_avx512, 16, 0};
    if (tw_cpu_has("avx2") && tw_cpu_has("fma")) return (burn){burn_avx2, 8, 0};
#endif
    return (burn){burn_plain, 4, 0};
}

typedef struct sweep {
    const uint64_t *memory;
    _Atomic(uint64_t) sink;
} sweep;

static void read_items(void *context, int32_t thread, int64_t begin, int64_t end) {
    sweep *s = context;
    const uint64_t *at = s->memory + begin * READ_ITEM / 8, *stop = s->memory + end * READ_ITEM / 8;
    uint64_t sum = 0;
    (void)thread;
    for (; at < stop; at += 8) sum |= *at;  /* a word brings its line: many lines on their way */
    atomic_fetch_or(&s->sink, sum);
}

/* The best of three: what else runs on the machine only ever takes away. */
static double best_seconds(tw_session *session, pool_task task, void *context, int64_t extent) {
    double best = 0;
    for (int i = 0; i < 3; i++) {
        int64_t start = now_nanoseconds();
        session_spread(session, task, context, extent);
        double seconds = (double)(now_nanoseconds() - start) * 1e-9;
        if (!i || seconds < best) best = seconds;
    }
    return best;
}

tw_status tw_probe_machine(tw_session *session, double *gflops, double *gbytes) {
    burn b = choose_burn();
    sweep s = {allocate(READ_BYTES), 0};
    if (!s.memory) return fail(TW_ERROR_MEMORY, "out of memory: %ld bytes", (long)READ_BYTES);
    memset((void *)s.memory, 1, READ_BYTES);
    int64_t items = (int64_t)ITEMS_PER_THREAD * tw_session_threads(session);
    double flops = 2.0 * CHAINS * b.lanes * FLOP_ROUNDS * (double)items;
    *gflops = flops / best_seconds(session, burn_items, &b, items) * 1e-9;
    *gbytes = READ_BYTES / best_seconds(session, read_items, &s, READ_BYTES / READ_ITEM) * 1e-9;
    release((void *)s.memory, READ_BYTES);
    return TW_OK;
}
