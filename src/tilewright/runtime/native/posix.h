/* posix.h: what the runtime uses of POSIX. Windows, whose C library lacks it (MinGW has the threads
 * and the clock), gets here by its own functions what the runtime asks for, and no more than that. */
#ifndef TILEWRIGHT_POSIX_H
#define TILEWRIGHT_POSIX_H

#ifdef _WIN32
#define _FILE_OFFSET_BITS 64            /* sizes of files that 32 bits do not hold */
#endif
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef _WIN32
#include <sys/mman.h>

#ifdef __APPLE__
#define st_mtim st_mtimespec
#endif
/* A file to read, for this process alone; a pipe must not hold us up. */
static inline int open_to_read(const char *path) {
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

static inline int duplicate(int file) { return fcntl(file, F_DUPFD_CLOEXEC, 0); }

static inline bool same_time(const struct stat *a, const struct stat *b) {
    return a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

#define MAPS_FILES true                  /* among pages of memory */
#define COMMIT_STACK() ((void)0)

#else
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <io.h>

enum { PROT_READ = 1, PROT_WRITE = 2, PROT_EXEC = 4 };
enum { MAP_PRIVATE = 0, MAP_ANONYMOUS = 0, MAP_NORESERVE = 0, MAP_FIXED = 1 };
#define MAP_FAILED ((void *)-1)
#undef pthread_atfork                   /* nothing forks */
#define pthread_atfork(prepare, parent, child) ((void)(child))
#define MAPS_FILES false

static inline void *mmap(void *at, size_t bytes, int access, int how, int file, int64_t offset) {
    (void)at, (void)access, (void)file, (void)offset;
    void *made = how & MAP_FIXED ? NULL
                                 : VirtualAlloc(NULL, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    return made ? made : MAP_FAILED;
}

static inline int munmap(void *at, size_t bytes) {
    (void)bytes;
    return VirtualFree(at, 0, MEM_RELEASE) ? 0 : -1;
}

static inline int mprotect(void *at, size_t bytes, int access) {
    DWORD before;
    return VirtualProtect(at, bytes, access & PROT_EXEC ? PAGE_EXECUTE_READ : PAGE_READWRITE, &before)
               ? 0 : -1;
}

static inline int open_to_read(const char *path) {
    wchar_t wide[4096];
    if (!MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, sizeof wide / sizeof *wide)) return -1;
    return _wopen(wide, _O_RDONLY | _O_BINARY | _O_NOINHERIT);
}

static inline int64_t pread(int file, void *to, size_t bytes, int64_t offset) {
    OVERLAPPED from = {.Offset = (DWORD)offset, .OffsetHigh = (DWORD)(offset >> 32)};
    DWORD got = 0, asked = bytes < 1u << 30 ? (DWORD)bytes : 1u << 30;
    return ReadFile((HANDLE)_get_osfhandle(file), to, asked, &got, &from) ? (int64_t)got : -1;
}

static inline int duplicate(int file) { return _dup(file); }

static inline bool same_time(const struct stat *a, const struct stat *b) {
    return a->st_mtime == b->st_mtime;
}

enum { _SC_PAGESIZE, _SC_PHYS_PAGES, _SC_NPROCESSORS_ONLN };
static inline long sysconf(int what) {
    SYSTEM_INFO system;
    MEMORYSTATUSEX memory = {.dwLength = sizeof memory};
    GetSystemInfo(&system);
    if (what == _SC_NPROCESSORS_ONLN) return (long)system.dwNumberOfProcessors;
    if (what == _SC_PAGESIZE) return (long)system.dwPageSize;
    return GlobalMemoryStatusEx(&memory) ? (long)(memory.ullTotalPhys / system.dwPageSize) : -1;
}

/* Windows adds pages to a stack one after another. Code of artifacts does not know that: it may touch
 * one that lies several pages on. */
static inline __attribute__((noinline)) void commit_stack(void) {
    volatile char pages[1 << 17];
    for (size_t at = sizeof pages; at; at -= 4096) pages[at - 1] = 0;
}
#define COMMIT_STACK() commit_stack()
#endif

#endif
