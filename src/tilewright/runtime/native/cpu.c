/* cpu.c: which instruction sets this machine has (named as LLVM names them), and how many cores. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#define ARCH "x86_64"

/* `state`: the register state that the operating system must save (bits of XCR0). */
enum { STATE_AVX = 0x6, STATE_AVX512 = 0xE6, STATE_AMX = 0x60000 };
enum { EAX, EBX, ECX, EDX };
static const struct { const char *name; uint32_t leaf, subleaf; int reg, bit; uint32_t state; } table[] = {
    {"sse", 1, 0, EDX, 25, 0},
    {"sse2", 1, 0, EDX, 26, 0},
    {"sse3", 1, 0, ECX, 0, 0},
    {"pclmul", 1, 0, ECX, 1, 0},
    {"ssse3", 1, 0, ECX, 9, 0},
    {"fma", 1, 0, ECX, 12, STATE_AVX},
    {"cx16", 1, 0, ECX, 13, 0},
    {"sse4.1", 1, 0, ECX, 19, 0},
    {"sse4.2", 1, 0, ECX, 20, 0},
    {"movbe", 1, 0, ECX, 22, 0},
    {"popcnt", 1, 0, ECX, 23, 0},
    {"avx", 1, 0, ECX, 28, STATE_AVX},
    {"f16c", 1, 0, ECX, 29, STATE_AVX},
    {"bmi", 7, 0, EBX, 3, 0},
    {"avx2", 7, 0, EBX, 5, STATE_AVX},
    {"bmi2", 7, 0, EBX, 8, 0},
    {"avx512f", 7, 0, EBX, 16, STATE_AVX512},
    {"avx512dq", 7, 0, EBX, 17, STATE_AVX512},
    {"avx512ifma", 7, 0, EBX, 21, STATE_AVX512},
    {"avx512cd", 7, 0, EBX, 28, STATE_AVX512},
    {"avx512bw", 7, 0, EBX, 30, STATE_AVX512},
    {"avx512vl", 7, 0, EBX, 31, STATE_AVX512},
    {"avx512vbmi", 7, 0, ECX, 1, STATE_AVX512},
    {"avx512vbmi2", 7, 0, ECX, 6, STATE_AVX512},
    {"gfni", 7, 0, ECX, 8, 0},
    {"avx512vnni", 7, 0, ECX, 11, STATE_AVX512},
    {"avx512bitalg", 7, 0, ECX, 12, STATE_AVX512},
    {"avx512vpopcntdq", 7, 0, ECX, 14, STATE_AVX512},
    {"amx-bf16", 7, 0, EDX, 22, STATE_AMX},
    {"avx512fp16", 7, 0, EDX, 23, STATE_AVX512},
    {"amx-tile", 7, 0, EDX, 24, STATE_AMX},
    {"amx-int8", 7, 0, EDX, 25, STATE_AMX},
    {"avxvnni", 7, 1, EAX, 4, STATE_AVX},
    {"avx512bf16", 7, 1, EAX, 5, STATE_AVX512},
    {"amx-fp16", 7, 1, EAX, 21, STATE_AMX},
    {"avxifma", 7, 1, EAX, 23, STATE_AVX},
    {"avxvnniint8", 7, 1, EDX, 4, STATE_AVX},
    {"avxneconvert", 7, 1, EDX, 5, STATE_AVX},
    {"lzcnt", 0x80000001, 0, ECX, 5, 0},
};

static uint32_t saved_state(void) {
    uint32_t r[4], low, high;
    if (!__get_cpuid(1, &r[0], &r[1], &r[2], &r[3]) || !(r[ECX] >> 27 & 1)) return 0;   /* OSXSAVE */
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

#if defined(__linux__)
#include <sys/syscall.h>
/* Linux hands out the AMX tiles only to a process that asks. */
static bool permit_amx(void) { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }
#else
static bool permit_amx(void) { return false; }
#endif

int32_t tw_cpu_has(const char *feature) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].name, feature)) continue;
        uint32_t r[4] = {0};
        if (!__get_cpuid_count(table[i].leaf, table[i].subleaf, &r[0], &r[1], &r[2], &r[3])) return 0;
        if (!(r[table[i].reg] >> table[i].bit & 1)) return 0;
        if (table[i].state && (saved_state() & table[i].state) != table[i].state) return 0;
        return table[i].state != STATE_AMX || permit_amx();
    }
    return 0;
}

#elif defined(__aarch64__)
#define ARCH "aarch64"
#if defined(__linux__)
#include <sys/auxv.h>
static const struct { const char *name; int word, bit; } table[] = {     /* AT_HWCAP, AT_HWCAP2 */
    {"fp-armv8", 0, 0}, {"neon", 0, 1}, {"aes", 0, 3}, {"crc", 0, 7}, {"lse", 0, 8},
    {"fullfp16", 0, 10}, {"rdm", 0, 12}, {"dotprod", 0, 20}, {"sve", 0, 22}, {"fp16fml", 0, 23},
    {"sve2", 1, 1}, {"i8mm", 1, 13}, {"bf16", 1, 14}, {"sme", 1, 23},
};
int32_t tw_cpu_has(const char *feature) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, feature))
            return getauxval(table[i].word ? AT_HWCAP2 : AT_HWCAP) >> table[i].bit & 1;
    return 0;
}
#elif defined(__APPLE__)
#include <sys/sysctl.h>
static const struct { const char *name, *question; } table[] = {
    {"fp-armv8", "hw.optional.floatingpoint"}, {"neon", "hw.optional.neon"},
    {"aes", "hw.optional.arm.FEAT_AES"}, {"crc", "hw.optional.armv8_crc32"},
    {"lse", "hw.optional.arm.FEAT_LSE"}, {"fullfp16", "hw.optional.arm.FEAT_FP16"},
    {"rdm", "hw.optional.arm.FEAT_RDM"}, {"dotprod", "hw.optional.arm.FEAT_DotProd"},
    {"fp16fml", "hw.optional.arm.FEAT_FHM"}, {"i8mm", "hw.optional.arm.FEAT_I8MM"},
    {"bf16", "hw.optional.arm.FEAT_BF16"}, {"sme", "hw.optional.arm.FEAT_SME"},
};
int32_t tw_cpu_has(const char *feature) {
    int32_t answer = 0;
    size_t bytes = sizeof answer;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, feature))
            return !sysctlbyname(table[i].question, &answer, &bytes, NULL, 0) && answer;
    return 0;
}
#else
int32_t tw_cpu_has(const char *feature) { return !strcmp(feature, "neon"); }
#endif

#else
#if defined(__riscv)
#define ARCH "riscv64"
#elif defined(__arm__)
#define ARCH "arm"
#else
#define ARCH "unknown"
#endif
int32_t tw_cpu_has(const char *feature) { (void)feature; return 0; }
#endif

bool cpu_has_all(const char *arch, const char *features) {
    if (strcmp(arch, ARCH)) return false;
    while (*features) {
        char name[32];
        size_t length = strcspn(features, ",");
        if (length >= sizeof name) return false;
        memcpy(name, features, length);
        name[length] = 0;
        if (length && !tw_cpu_has(name)) return false;
        features += length + (features[length] == ',');
    }
    return true;
}

#if defined(__linux__)
/* The lowest-numbered hardware thread of the core that `cpu` belongs to. */
static int first_sibling(int cpu) {
    char path[96];
    int first = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "re");
    if (!file) return cpu;
    if (fscanf(file, "%d", &first) != 1) first = cpu;
    fclose(file);
    return first;
}

/* How many cores the control group grants; large when there is no limit. */
static int quota(void) {
    long long limit = 0, period = 0;
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!file) return TW_MAX_THREADS;
    int read = fscanf(file, "%lld %lld", &limit, &period);      /* "max 100000" reads nothing */
    fclose(file);
    if (read != 2 || limit <= 0 || period <= 0) return TW_MAX_THREADS;
    long long cores = (limit + period - 1) / period;
    return cores < TW_MAX_THREADS ? (int)cores : TW_MAX_THREADS;
}

int32_t tw_default_threads(void) {
    cpu_set_t allowed, cores;
    CPU_ZERO(&cores);
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return 1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed)) CPU_SET(first_sibling(cpu) % CPU_SETSIZE, &cores);
    int count = CPU_COUNT(&cores), granted = quota();
    return count < granted ? count : granted;
}
#else
int32_t tw_default_threads(void) {
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : count > TW_MAX_THREADS ? TW_MAX_THREADS : (int32_t)count;
}
#endif
