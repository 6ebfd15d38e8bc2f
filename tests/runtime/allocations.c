/* allocations.c: runs an artifact and prints how often the heap and the address space were asked for
 * memory while it did. usage: allocations MODEL.tw THREADS RUNS DIM
 * The program's own malloc & co. take the place of libc's for every library in the process. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "tilewright.h"

static atomic_long requests;

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t n) { requests++; return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { requests++; return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { requests++; return __libc_realloc(p, n); }
void *aligned_alloc(size_t a, size_t n) { requests++; return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) {
    requests++;
    return (*p = __libc_memalign(a, n)) ? 0 : 12;
}
void *mmap(void *at, size_t n, int protection, int flags, int file, off_t offset) {
    requests++;
    return (void *)syscall(SYS_mmap, at, n, protection, flags, file, offset);
}

static size_t bytes(const tw_tensor *t) {
    size_t size = 8;
    for (int i = 0; i < t->rank; i++) size *= (size_t)t->shape[i];
    return size;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    int runs = atoi(argv[3]);
    tw_module *module = tw_module_open(argv[1]);
    tw_session *session = module ? tw_session_create(module, atoi(argv[2])) : NULL;
    if (!session) return fprintf(stderr, "%s\n", tw_error()), 1;
    enum { MOST = 256 };
    tw_tensor inputs[MOST], outputs[MOST];
    static int64_t dims[MOST][TW_MAX_RANK], shapes[MOST * TW_MAX_RANK], *shape = shapes;
    for (int i = 0; i < tw_input_count(module) && i < MOST; i++) {
        const tw_info *info = tw_input_info(module, i);
        for (int d = 0; d < info->rank; d++) dims[i][d] = info->dims[d] < 0 ? atoi(argv[4]) : info->dims[d];
        inputs[i] = (tw_tensor){NULL, dims[i], info->rank, info->dtype};
        inputs[i].data = __libc_calloc(1, bytes(&inputs[i]) + 1);
    }
    if (tw_output_shapes(session, inputs, shapes)) return fprintf(stderr, "%s\n", tw_error()), 1;
    for (int i = 0; i < tw_output_count(module) && i < MOST; i++) {
        const tw_info *info = tw_output_info(module, i);
        outputs[i] = (tw_tensor){NULL, shape, info->rank, info->dtype};
        outputs[i].data = __libc_calloc(1, bytes(&outputs[i]) + 1);
        shape += info->rank;
    }
    if (tw_run(session, inputs, outputs)) return fprintf(stderr, "%s\n", tw_error()), 1;
    long before = requests;
    double start = seconds();
    for (int i = 0; i < runs; i++)
        if (tw_run(session, inputs, outputs)) return fprintf(stderr, "%s\n", tw_error()), 1;
    double each = (seconds() - start) / runs;
    printf("%ld requests, %.0f nanoseconds a run, %ld before\n", requests - before, each * 1e9, before);
    tw_session_destroy(session);
    tw_module_close(module);
    return 0;
}
