/* tilewright.h: run compiled models from C.
 *
 *   tw_module   a loaded artifact (*.tw): immutable, may be shared by threads
 *   tw_session  what one run needs: arena, scratch, threads; one run at a time per session
 *
 *   tw_module *module = tw_module_open("model.tw");
 *   tw_session *session = tw_session_create(module, 2);
 *   if (!session || tw_run(session, inputs, outputs)) fputs(tw_error(), stderr);
 *
 * A function that fails returns NULL or a non-zero tw_status; tw_error() says why.
 * An artifact carries native code: load only files that you would also link against.
 * After a fork, the child may use a session that was not in a run (alone, without its threads), and
 * create others.
 */
#ifndef TILEWRIGHT_H
#define TILEWRIGHT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef TW_API                          /* a model's own header has said it */
#ifdef _WIN32
#define TW_API __attribute__((dllexport))
#else
#define TW_API __attribute__((visibility("default")))
#endif
#endif

/* ---- Types: a model's own header has them, too (see runtime/amalgamation.py) ----------------- */

#ifndef TW_ABI_VERSION
#define TW_ABI_VERSION 4
#define TW_MAX_RANK 16
#define TW_MAX_THREADS 1024
#define TW_DIM_COMPUTED INT64_MIN       /* a dimension that is a formula of symbols            */
#define TW_DIM_DATA_DEPENDENT (INT64_MIN + 1) /* one that only a run tells: see tw_result        */

typedef enum tw_status {
    TW_OK = 0,
    TW_ERROR_FILE = 1,                  /* the artifact cannot be read, or is damaged            */
    TW_ERROR_MACHINE = 2,               /* no code in the artifact suits this machine            */
    TW_ERROR_MEMORY = 3,                /* out of memory or threads                              */
    TW_ERROR_INPUT = 4,                 /* a tensor does not fit the model                       */
    TW_ERROR_BUSY = 5,                  /* the session is in a run of another thread             */
    TW_ERROR_PROGRAM = 6                /* the compiled program reported a fault                 */
} tw_status;

typedef enum tw_dtype {
    TW_F64 = 1, TW_F32, TW_F16, TW_BF16, TW_F8E4M3, TW_F8E5M2, TW_F8E4M3FNUZ, TW_F8E5M2FNUZ,
    TW_I64 = 16, TW_I32, TW_I16, TW_I8, TW_I4, TW_I2, TW_I1,
    TW_U64 = 32, TW_U32, TW_U16, TW_U8, TW_U4, TW_U2, TW_U1,
    TW_BOOL = 48
} tw_dtype;

/* What the model declares of a tensor. A dimension d >= 0 is a constant, a negative one is
 * symbol number -1 - d, TW_DIM_COMPUTED is a formula of symbols (in the manifest; of an output
 * tw_output_shapes computes it), and TW_DIM_DATA_DEPENDENT is known from tw_result only. */
typedef struct tw_info {
    const char *name;
    const int64_t *dims;
    int32_t rank;
    int32_t dtype;
} tw_info;

/* A dense row-major tensor of the caller, aligned to its elements. Elements under a byte are
 * packed, the first one in the low bits, and the whole tensor is rounded up to a byte. */
typedef struct tw_tensor {
    void *data;
    const int64_t *shape;
    int32_t rank;
    int32_t dtype;
} tw_tensor;
#elif TW_ABI_VERSION != 4
#error "headers of different releases of Tilewright: include them in different source files"
#endif

/* ---- Modules and sessions: a model's own header has them under its name ---------------------- */

typedef struct tw_module tw_module;
typedef struct tw_session tw_session;

TW_API const char *tw_error(void);                              /* of this thread's last failure  */
TW_API tw_status tw_error_status(void);                         /* and its kind                   */

TW_API void tw_module_close(tw_module *);                       /* sessions may still be in use   */

TW_API const char *tw_module_name(const tw_module *);
TW_API const char *tw_module_manifest(const tw_module *, size_t *size);     /* JSON, no final NUL */
TW_API int32_t tw_module_variant(const tw_module *);            /* which code variant was chosen  */
TW_API int32_t tw_input_count(const tw_module *);
TW_API int32_t tw_output_count(const tw_module *);
TW_API int32_t tw_symbol_count(const tw_module *);
TW_API int32_t tw_kernel_count(const tw_module *);
TW_API const tw_info *tw_input_info(const tw_module *, int32_t index);      /* NULL: no such index */
TW_API const tw_info *tw_output_info(const tw_module *, int32_t index);
TW_API const char *tw_symbol_name(const tw_module *, int32_t index);
TW_API const char *tw_kernel_name(const tw_module *, int32_t index);

/* threads: how many work on one run, the caller included; 0 takes every core this process may use */
TW_API tw_session *tw_session_create(tw_module *, int32_t threads);
TW_API void tw_session_destroy(tw_session *);
TW_API int32_t tw_session_threads(const tw_session *);
TW_API int64_t tw_session_arena_bytes(const tw_session *);

/* Checks every tensor, then runs. Allocates nothing unless symbolic dimensions grow the arena.
 * Outputs with a TW_DIM_DATA_DEPENDENT dimension are ignored: the session holds them (tw_result). */
TW_API tw_status tw_run(tw_session *, const tw_tensor *inputs, const tw_tensor *outputs);
/* Shapes of all outputs, one after another, for these inputs (data pointers are not used); a
 * dimension that only a run tells is TW_DIM_DATA_DEPENDENT. */
TW_API tw_status tw_output_shapes(tw_session *, const tw_tensor *inputs, int64_t *shapes);
/* An output of data-dependent shape as the last successful tw_run left it; valid until the next. */
TW_API tw_status tw_result(tw_session *, int32_t output, tw_tensor *result);
/* The value of a symbol in the last run; -1 if it has none. */
TW_API int64_t tw_symbol_value(const tw_session *, int32_t symbol);

/* While profiling is on, the time and the number of launches of each kernel are added up. */
TW_API tw_status tw_profile(tw_session *, int32_t on);          /* turning it on starts from zero */
TW_API tw_status tw_profile_read(tw_session *, int64_t *nanoseconds, int64_t *launches);

/* ---- Artifacts, and the machine -------------------------------------------------------------- */

/* Weights of 32 MiB and more are mapped, all else is copied. Replace a file that is in use by renaming
 * another over it: once it was written to, tw_run refuses to run on what is mapped of it. */
TW_API tw_module *tw_module_open(const char *path);
/* The bytes are not copied and must outlive the module. */
TW_API tw_module *tw_module_open_memory(const void *bytes, size_t size);
TW_API const void *tw_module_bytes(const tw_module *, size_t *size);        /* the whole artifact */
/* What the session's threads reach together: f32 multiply-adds and reads of main memory. */
TW_API tw_status tw_probe_machine(tw_session *, double *gflops, double *gbytes);
TW_API int32_t tw_abi_version(void);
TW_API void tw_limit_memory(size_t bytes);      /* what the process may have, if less than the machine */
TW_API int32_t tw_default_threads(void);
TW_API int32_t tw_cpu_has(const char *feature);                 /* named as LLVM names it         */
/* The hash that guards sections: start from zeroed state, feed, then finish. */
typedef struct tw_hash { uint64_t lane[8]; uint64_t total; uint8_t rest[64]; } tw_hash;
TW_API void tw_hash_feed(tw_hash *, const void *bytes, size_t size);
TW_API uint64_t tw_hash_finish(tw_hash *);

/* ---- Between compiled code and runtime ------------------------------------------------------- */

/* Code in artifacts is called as on Linux, on every system that it runs on. */
#if defined(_WIN32) && defined(__x86_64__)
#define TW_CODE __attribute__((sysv_abi))
#else
#define TW_CODE
#endif

/* A kernel runs iterations [begin, end) of its parallel loop. frame: 8-byte slots, buffer pointers
 * first, then int64 symbol values. scratch: memory of this thread alone, 64-byte aligned. */
typedef void (TW_CODE *tw_kernel)(void *const *frame, void *scratch, int64_t begin, int64_t end);

typedef struct tw_call tw_call;
struct tw_call {
    void *const *inputs;                /* data of each model input, in order                     */
    void *const *outputs;               /* data of each model output, in order                    */
    int64_t *dims;                      /* values of the symbolic dimensions; data-dependent
                                         * ones are written by the program                        */
    uint8_t *arena;                     /* 64-byte aligned, planned at compile time               */
    const uint8_t *weights;             /* 64-byte aligned, read-only                             */
    /* Runs all iterations of a kernel's parallel loop. A kernel of several loops is launched for
     * each: with its id for the first, with ~id for the others. alone: on the caller's thread. */
    void (TW_CODE *launch)(tw_call *, int32_t kernel_id, tw_kernel, void *const *frame,
                           int64_t extent, int32_t alone);
    /* Buffer `index` with room for `bytes`, 64-byte aligned (NULL: no memory). The first ones hold
     * the outputs of data-dependent dimensions. */
    void *(TW_CODE *provide)(tw_call *, int32_t index, int64_t bytes);
    /* Says of the run why it ends: one of `count` indices, `stride` elements apart, is not from
     * `least` to `most`. what: the operator that they are given to. */
    void (TW_CODE *refuse)(tw_call *, const char *what, const void *indices, int32_t dtype,
                           int64_t count, int64_t stride, int64_t least, int64_t most);
};

/* The host program. 0; -1: out of memory; -2: `refuse` was called; n > 0: what its n-th `measure`
 * found are no sizes. */
typedef int32_t (TW_CODE *tw_entry)(tw_call *);
/* Output shapes one after another and the arena's size, from the symbolic dimensions. */
typedef int32_t (TW_CODE *tw_shapes)(const int64_t *dims, int64_t *shapes, int64_t *arena_bytes);

#ifdef __cplusplus
}
#endif
#endif
