/* memory.c: aligned memory for arenas, scratch and copies, on huge pages where that pays. */
#include "internal.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define LARGEST ((size_t)1 << 46)

/* The system may promise more than there is, and end the process when it is used. */
static _Atomic size_t limit = LARGEST;

void tw_limit_memory(size_t bytes) { limit = bytes; }

size_t memory_limit(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t machine = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : LARGEST;
    return machine < limit ? machine : limit;
}

#ifdef _WIN32
void on_huge_pages(const void *memory, size_t bytes) { (void)memory, (void)bytes; }

void *allocate(size_t bytes) {
    if (bytes > HUGE_PAGE && bytes > memory_limit()) return NULL;
    return _aligned_malloc(bytes ? bytes : ALIGNMENT, ALIGNMENT);
}

void release(void *memory, size_t bytes) {
    (void)bytes;
    _aligned_free(memory);
}
#else
#ifndef MADV_HUGEPAGE
#define MADV_HUGEPAGE MADV_NORMAL
#endif

/* A hint for whole pages: kernels without huge ones, or without those of files, refuse it. */
void on_huge_pages(const void *memory, size_t bytes) { madvise((void *)memory, bytes, MADV_HUGEPAGE); }

void *allocate(size_t bytes) {
    if (bytes > HUGE_PAGE && bytes > memory_limit()) return NULL;
    if (bytes < 2 * HUGE_PAGE) {
        void *memory = NULL;
        return posix_memalign(&memory, ALIGNMENT, bytes ? bytes : ALIGNMENT) ? NULL : memory;
    }
    /* Map one huge page more than asked and give back what lies before and after. */
    size_t rounded = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE, whole = rounded + HUGE_PAGE;
    uint8_t *mapping = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) return NULL;
    size_t before = (HUGE_PAGE - (uintptr_t)mapping % HUGE_PAGE) % HUGE_PAGE;
    if (before) munmap(mapping, before);
    if (HUGE_PAGE - before) munmap(mapping + before + rounded, HUGE_PAGE - before);
    on_huge_pages(mapping + before, rounded);
    return mapping + before;
}

void release(void *memory, size_t bytes) {
    if (!memory) return;
    if (bytes < 2 * HUGE_PAGE) free(memory);
    else munmap(memory, (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
}
#endif
