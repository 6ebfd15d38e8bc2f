/* pool.c: a fork-join pool for many short parallel regions.
 *
 * Every thread owns an equal, contiguous part of the iterations and takes chunks from its front;
 * one that is done takes chunks from the others' parts. A chunk is a fraction of what is left of the
 * part, so the last ones are single iterations, and all threads are done at nearly the same time.
 * So a thread gets the same part of the data in one region after another, and a thread that was
 * held up delays nobody for long. Workers spin for a while between regions, then sleep. The caller
 * never waits for a worker that has not joined the region: it does the work alone if it must. */
#include "internal.h"

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define RELAX() __asm__ volatile("yield")
#else
#define RELAX() ((void)0)
#endif

#define SPIN_NANOSECONDS 100000
#define CHUNK_DIVISOR 8                 /* of what is left, a chunk takes one in so many */

/* `state` of a region: its number, whether threads may still join, how many are inside. */
#define EPOCH(state) ((state) >> 32)
#define OPEN ((uint64_t)1 << 31)
#define JOINED(state) ((state) & (OPEN - 1))

typedef struct part {                   /* one thread's iterations, on a cache line of its own */
    _Alignas(ALIGNMENT) _Atomic(int64_t) next;
    int64_t end;
} part;

typedef struct worker {
    pool *pool;
    int32_t thread;
    pthread_t handle;
} worker;

struct pool {
    _Alignas(ALIGNMENT) _Atomic(uint64_t) state;
    _Alignas(ALIGNMENT) atomic_int sleeping;
    atomic_bool stopping;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    _Alignas(ALIGNMENT) pool_task task; /* the region: written while closed, read once joined */
    void *context;
    int32_t threads, spins;
    int forks;                          /* how often the process had forked at creation */
    part *parts;
    worker workers[];
};

static atomic_int forks;
static void count_fork(void) { atomic_fetch_add(&forks, 1); }
static void watch_forks(void) { pthread_atfork(NULL, NULL, count_fork); }

/* A forked child has the pool's memory but none of its workers. */
static bool is_orphan(const pool *p) { return p->forks != atomic_load(&forks); }

static void take_chunks(pool *p, int32_t thread) {
    for (int32_t i = 0; i < p->threads; i++) {
        int32_t victim = thread + i < p->threads ? thread + i : thread + i - p->threads;
        part *mine = &p->parts[victim];
        int64_t begin = atomic_load_explicit(&mine->next, memory_order_relaxed);
        while (begin < mine->end) {
            int64_t chunk = (mine->end - begin + CHUNK_DIVISOR - 1) / CHUNK_DIVISOR;
            if (!atomic_compare_exchange_weak_explicit(&mine->next, &begin, begin + chunk,
                                                       memory_order_relaxed, memory_order_relaxed))
                continue;               /* another thread was first: `begin` is where it is now */
            p->task(p->context, thread, begin, begin + chunk);
            begin = atomic_load_explicit(&mine->next, memory_order_relaxed);
        }
    }
}

/* Returns the state of a region other than number `seen`; sleeps if none comes soon. */
static uint64_t next_region(pool *p, uint64_t seen) {
    uint64_t state;
    for (int32_t i = 0; i < p->spins; i++) {
        state = atomic_load_explicit(&p->state, memory_order_acquire);
        if (EPOCH(state) != seen) return state;
        RELAX();
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleeping, 1);
    while (EPOCH(state = atomic_load(&p->state)) == seen) pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->sleeping, 1);
    pthread_mutex_unlock(&p->lock);
    return state;
}

static void open_region(pool *p) {
    uint64_t epoch = (EPOCH(atomic_load_explicit(&p->state, memory_order_relaxed)) + 1) & 0xFFFFFFFF;
    atomic_store(&p->state, epoch << 32 | OPEN);
    if (atomic_load(&p->sleeping)) {    /* sequentially consistent with next_region: none is missed */
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
}

static void *work(void *argument) {
    worker *self = argument;
    pool *p = self->pool;
    uint64_t seen = 0;
    COMMIT_STACK();
    for (;;) {
        uint64_t state = next_region(p, seen);
        seen = EPOCH(state);
        if (atomic_load(&p->stopping)) return NULL;
        while (EPOCH(state) == seen && (state & OPEN)) {
            if (!atomic_compare_exchange_weak(&p->state, &state, state + 1)) continue;
            take_chunks(p, self->thread);
            atomic_fetch_sub(&p->state, 1);
            break;
        }
    }
}

void pool_run(pool *p, pool_task task, void *context, int64_t extent) {
    if (is_orphan(p)) {
        task(context, 0, 0, extent);
        return;
    }
    int64_t each = extent / p->threads, rest = extent % p->threads, begin = 0;
    p->task = task;
    p->context = context;
    for (int32_t i = 0; i < p->threads; i++) {
        atomic_store_explicit(&p->parts[i].next, begin, memory_order_relaxed);
        begin += each + (i < rest);
        p->parts[i].end = begin;
    }
    open_region(p);
    take_chunks(p, 0);
    uint64_t state = atomic_fetch_and(&p->state, ~OPEN);
    for (int spins = 0; JOINED(state); spins++) {
        if (spins < 1000) RELAX();
        else sched_yield();             /* a worker inside the region was put off its core */
        state = atomic_load_explicit(&p->state, memory_order_acquire);
    }
}

/* How many iterations of the waiting loop last about SPIN_NANOSECONDS on this machine. */
static int32_t calibrate(void) {
    struct timespec start, stop;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int i = 0; i < 1000; i++) RELAX();
    clock_gettime(CLOCK_MONOTONIC, &stop);
    int64_t took = (stop.tv_sec - start.tv_sec) * 1000000000 + stop.tv_nsec - start.tv_nsec;
    int64_t count = 1000 * (int64_t)SPIN_NANOSECONDS / (took > 100 ? took : 100);
    return count < 100 ? 100 : count > 1000000 ? 1000000 : (int32_t)count;
}

pool *pool_create(int32_t threads) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pool *p = allocate(sizeof *p + (size_t)(threads - 1) * sizeof(worker));
    if (!p) return NULL;
    *p = (pool){.spins = calibrate(), .forks = atomic_load(&forks), .threads = 1};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    p->parts = allocate((size_t)threads * sizeof(part));
    for (; p->parts && p->threads < threads; p->threads++) {
        worker *w = &p->workers[p->threads - 1];
        *w = (worker){.pool = p, .thread = p->threads};
        if (pthread_create(&w->handle, NULL, work, w)) break;
    }
    if (p->threads == threads) return p;
    pool_destroy(p);
    return NULL;
}

void pool_destroy(pool *p) {
    if (!p || is_orphan(p)) return;     /* an orphan's locks may be held for ever: leave it be */
    atomic_store(&p->stopping, true);
    open_region(p);
    for (int32_t i = 0; i < p->threads - 1; i++) pthread_join(p->workers[i].handle, NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    release(p->parts, (size_t)p->threads * sizeof(part));
    release(p, sizeof *p + (size_t)(p->threads - 1) * sizeof(worker));
}
