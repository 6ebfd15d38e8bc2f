/* internal.h: what the runtime's C files share with each other and with nobody else. */
#ifndef TILEWRIGHT_INTERNAL_H
#define TILEWRIGHT_INTERNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE                     /* sched_getaffinity, madvise */
#endif
#include <stdatomic.h>
#include <stdbool.h>
#include "posix.h"
#include "tilewright.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "artifacts are little-endian, and so must be the machine"
#endif

#ifndef INTERNAL                        /* `static` where all files are one translation unit          */
#define INTERNAL
#endif

#define ALIGNMENT 64                    /* of arena, scratch and weights: one cache line          */

/* error.c */
INTERNAL tw_status fail(tw_status, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define fail_null(...) ((void)fail(__VA_ARGS__), NULL)

INTERNAL const char *dtype_name(int32_t dtype);     /* NULL: no such dtype */

/* memory.c: zero-filled on demand, 64-byte aligned, huge pages where that pays; NULL: no memory */
INTERNAL void on_huge_pages(const void *memory, size_t bytes);
INTERNAL void *allocate(size_t bytes);
INTERNAL size_t memory_limit(void);
INTERNAL void release(void *memory, size_t bytes);

/* cpu.c: does this machine have every feature of a comma-separated list? */
INTERNAL bool cpu_has_all(const char *arch, const char *features);

/* pool.c */
typedef struct pool pool;
typedef void (*pool_task)(void *context, int32_t thread, int64_t begin, int64_t end);
INTERNAL pool *pool_create(int32_t threads);    /* threads >= 2, the caller included */
INTERNAL void pool_destroy(pool *);
INTERNAL void pool_run(pool *, pool_task, void *context, int64_t extent);

/* module.c */
#define MAX_DIM ((int64_t)1 << 46)      /* more elements than anybody has */

typedef struct symbol {
    const char *name;
    int64_t minimum, maximum;
    bool data_dependent;                /* the run finds it                  */
    bool bound;                         /* a dimension of some input gives it */
} symbol;

typedef struct linear {                 /* an input dimension that is scale * symbol + offset */
    int32_t input, axis, symbol;
    int64_t scale, offset;
    const char *formula;
} linear;

struct tw_module {
    atomic_int references;
    const uint8_t *bytes;               /* the artifact                                           */
    size_t size;
    bool ours;                          /* `bytes` is a mapping that this module made             */
    int file;                           /* whose weights are mapped; -1: all is in memory         */
    struct stat opened;                 /* its state at that time                                 */
    const char *name;
    const uint8_t *manifest;
    size_t manifest_bytes;
    const uint8_t *weights;
    void *weights_copy;                 /* when `bytes` was not aligned                           */
    size_t weights_bytes;
    uint8_t *code;                      /* mapped executable                                      */
    size_t code_bytes;
    tw_entry run;
    tw_shapes shapes;                   /* NULL: the io tables say all                            */
    int64_t arena_bytes, scratch_bytes;
    int32_t input_count, output_count, symbol_count, linear_count, kernel_count, variant;
    int32_t output_rank_total;
    tw_info *inputs, *outputs;
    symbol *symbols;
    linear *linears;
    const char **kernels;
};

/* Has nobody written to the file that weights are mapped from? */
INTERNAL bool module_is_unchanged(const tw_module *);

/* session.c */
INTERNAL int64_t now_nanoseconds(void);
INTERNAL void session_spread(tw_session *, pool_task, void *context, int64_t extent);

#endif
