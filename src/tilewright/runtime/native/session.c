/* session.c: one run of a module: checks tensors, binds symbols, calls the host program, launches
 * its kernels on the session's threads and, when asked, times them. */
#include "internal.h"

#include <string.h>

#define MAX_BUFFER ((int64_t)1 << 46)   /* bytes that nobody means */

struct tw_session {
    tw_call call;                       /* first: compiled code hands it back to launch */
    tw_module *module;
    atomic_flag busy;
    pool *pool;                         /* NULL: one thread */
    int32_t threads;
    void **inputs, **outputs;
    int64_t *dims;                      /* of the symbols */
    int64_t *shapes;                    /* of the outputs, one after another */
    struct buffer { void *data; int64_t bytes; } *buffers;  /* data-dependent; outputs first */
    int32_t buffer_count;
    bool ran;                           /* the last run succeeded */
    int64_t arena_bytes;
    uint8_t *scratch;                   /* `stride` bytes for each thread */
    size_t stride;
    int64_t *nanoseconds, *launches;    /* by kernel; NULL: not profiling */
};

/* ---- Launching kernels ------------------------------------------------------------------------ */

int64_t now_nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * (int64_t)1000000000 + time.tv_nsec;
}

typedef struct launch_task {
    tw_kernel kernel;
    void *const *frame;
    uint8_t *scratch;
    size_t stride;
} launch_task;

static void run_chunk(void *context, int32_t thread, int64_t begin, int64_t end) {
    const launch_task *t = context;
    t->kernel(t->frame, t->scratch + t->stride * (size_t)thread, begin, end);
}

static void TW_CODE launch(tw_call *call, int32_t id, tw_kernel kernel, void *const *frame, int64_t extent,
                   int32_t alone) {
    tw_session *s = (tw_session *)call;
    if (extent <= 0) return;
    int64_t start = s->nanoseconds ? now_nanoseconds() : 0;
    if (alone || extent == 1 || !s->pool) {
        kernel(frame, s->scratch, 0, extent);
    } else {
        launch_task task = {kernel, frame, s->scratch, s->stride};
        pool_run(s->pool, run_chunk, &task, extent);
    }
    int32_t kernel_id = id < 0 ? ~id : id;
    if (s->nanoseconds && kernel_id < s->module->kernel_count) {
        s->nanoseconds[kernel_id] += now_nanoseconds() - start;
        s->launches[kernel_id] += id >= 0;
    }
}

/* Buffers grow to what was ever asked, by half at least: a run of no larger sizes allocates nothing. */
static void *TW_CODE provide(tw_call *call, int32_t index, int64_t bytes) {
    tw_session *s = (tw_session *)call;
    if (index < 0 || bytes < 0 || bytes > MAX_BUFFER)
        return fail_null(TW_ERROR_MEMORY, "out of memory: %lld bytes", (long long)bytes);
    if (index >= s->buffer_count) {
        struct buffer *more = realloc(s->buffers, ((size_t)index + 1) * sizeof *more);
        if (!more) return fail_null(TW_ERROR_MEMORY, "out of memory");
        memset(more + s->buffer_count, 0, (size_t)(index + 1 - s->buffer_count) * sizeof *more);
        s->buffers = more;
        s->buffer_count = index + 1;
    }
    struct buffer *b = &s->buffers[index];
    if (!b->data || bytes > b->bytes) {
        release(b->data, (size_t)b->bytes);
        b->bytes = bytes < ALIGNMENT ? ALIGNMENT : bytes < b->bytes * 3 / 2 ? b->bytes * 3 / 2 : bytes;
        while (!(b->data = allocate((size_t)b->bytes)) && b->bytes > bytes) b->bytes = bytes;
        if (!b->data) {
            b->bytes = 0;
            fail(TW_ERROR_MEMORY, "out of memory: a tensor whose size the run found needs %lld bytes",
                 (long long)bytes);
        }
    }
    return b->data;
}

static int64_t index_at(const void *indices, int32_t dtype, int64_t i) {
    switch (dtype) {
    case TW_I32: return ((const int32_t *)indices)[i];
    case TW_I16: return ((const int16_t *)indices)[i];
    case TW_I8: return ((const int8_t *)indices)[i];
    case TW_U32: return ((const uint32_t *)indices)[i];
    case TW_U16: return ((const uint16_t *)indices)[i];
    case TW_U8: return ((const uint8_t *)indices)[i];
    default: return ((const int64_t *)indices)[i];
    }
}

static void TW_CODE refuse(tw_call *call, const char *what, const void *indices, int32_t dtype, int64_t count,
                   int64_t stride, int64_t least, int64_t most) {
    (void)call;
    int64_t index = index_at(indices, dtype, 0);
    for (int64_t i = 1; index >= least && index <= most && i < count; i++)
        index = index_at(indices, dtype, i * stride);
    fail(TW_ERROR_INPUT, "%s: index %lld is not from %lld to %lld", what, (long long)index,
         (long long)least, (long long)most);
}

void session_spread(tw_session *s, pool_task task, void *context, int64_t extent) {
    if (s->pool) pool_run(s->pool, task, context, extent);
    else task(context, 0, 0, extent);
}

/* ---- Creating and destroying ------------------------------------------------------------------ */

tw_session *tw_session_create(tw_module *m, int32_t threads) {
    if (threads < 0 || threads > TW_MAX_THREADS)
        return fail_null(TW_ERROR_INPUT, "threads must be 0 to %d, not %d", TW_MAX_THREADS, threads);
    tw_session *s = calloc(1, sizeof *s);
    if (!s) return fail_null(TW_ERROR_MEMORY, "out of memory");
    atomic_fetch_add(&m->references, 1);
    s->module = m;
    s->threads = threads ? threads : tw_default_threads();
    s->stride = ((size_t)m->scratch_bytes + 4095) / 4096 * 4096;    /* no page is shared */
    s->arena_bytes = m->arena_bytes;
    s->inputs = calloc((size_t)m->input_count + 1, sizeof *s->inputs);
    s->outputs = calloc((size_t)m->output_count + 1, sizeof *s->outputs);
    s->dims = calloc((size_t)m->symbol_count + 1, sizeof *s->dims);
    s->shapes = calloc((size_t)m->output_rank_total + 1, sizeof *s->shapes);
    s->scratch = allocate(s->stride * (size_t)s->threads);
    s->call = (tw_call){s->inputs, s->outputs, s->dims, allocate((size_t)s->arena_bytes),
                        m->weights, launch, provide, refuse};
    bool complete = s->inputs && s->outputs && s->dims && s->shapes && s->scratch && s->call.arena;
    if (!complete)
        fail(TW_ERROR_MEMORY, "out of memory: the model needs %lld bytes for its arena and %zu for "
             "each of %d threads", (long long)s->arena_bytes, s->stride, s->threads);
    if (complete && s->threads > 1 && !(s->pool = pool_create(s->threads))) {
        fail(TW_ERROR_MEMORY, "out of memory: %d threads cannot be started", s->threads);
        complete = false;
    }
    if (complete) return s;
    tw_session_destroy(s);
    return NULL;
}

void tw_session_destroy(tw_session *s) {
    if (!s) return;
    pool_destroy(s->pool);
    release(s->call.arena, (size_t)s->arena_bytes);
    release(s->scratch, s->stride * (size_t)s->threads);
    for (int32_t i = 0; i < s->buffer_count; i++)
        release(s->buffers[i].data, (size_t)s->buffers[i].bytes);
    free(s->buffers);
    free(s->inputs);
    free(s->outputs);
    free(s->dims);
    free(s->shapes);
    free(s->nanoseconds);
    tw_module_close(s->module);
    free(s);
}

int32_t tw_session_threads(const tw_session *s) { return s->threads; }
int64_t tw_session_arena_bytes(const tw_session *s) { return s->arena_bytes; }

/* ---- Checking tensors ------------------------------------------------------------------------- */

static tw_status check_kind(const char *what, int32_t index, const tw_info *info, const tw_tensor *t) {
    const char *name = dtype_name(t->dtype);
    if (t->dtype != info->dtype)
        return fail(TW_ERROR_INPUT, "%s %d '%s': dtype is %s, expected %s", what, index, info->name,
                    name ? name : "unknown", dtype_name(info->dtype));
    if (t->rank != info->rank)
        return fail(TW_ERROR_INPUT, "%s %d '%s': it has %d dimensions, expected %d", what, index,
                    info->name, t->rank, info->rank);
    if (t->rank && !t->shape)
        return fail(TW_ERROR_INPUT, "%s %d '%s': its shape is NULL", what, index, info->name);
    return TW_OK;
}

static tw_status wrong_dim(const char *what, int32_t index, const tw_info *info, int32_t d,
                           int64_t given, int64_t expected, const char *because) {
    return fail(TW_ERROR_INPUT, "%s %d '%s': dimension %d is %lld, expected %lld%s%s", what, index,
                info->name, d, (long long)given, (long long)expected, *because ? " = " : "", because);
}

static tw_status check_data(const char *what, int32_t index, const tw_info *info, const tw_tensor *t) {
    if (t->data) return TW_OK;
    for (int32_t d = 0; d < t->rank; d++)
        if (!t->shape[d]) return TW_OK;
    return fail(TW_ERROR_INPUT, "%s %d '%s': its data is NULL", what, index, info->name);
}

/* An input dimension that is scale * symbol + offset: the first one gives the symbol, the others
 * must be consistent with it. */
static tw_status bind_linear(tw_session *s, const tw_tensor *inputs, linear l, const char *formula) {
    const tw_info *info = &s->module->inputs[l.input];
    const symbol *sym = &s->module->symbols[l.symbol];
    int64_t *value = &s->dims[l.symbol], given = inputs[l.input].shape[l.axis], rest = given - l.offset;
    int64_t least = *value < 0 ? sym->minimum : *value, most = *value < 0 ? sym->maximum : *value;
    if (given >= 0 && given <= MAX_DIM && rest >= 0 && rest % l.scale == 0 &&
        rest / l.scale >= least && rest / l.scale <= most) {
        *value = rest / l.scale;
        return TW_OK;
    }
    bool plain = formula == sym->name;
    if (least == most)
        return wrong_dim("input", l.input, info, l.axis, given, l.scale * least + l.offset, formula);
    return fail(TW_ERROR_INPUT, "input %d '%s': dimension %d is %lld, expected %s%s%s from %lld to %lld",
                l.input, info->name, l.axis, (long long)given, formula, plain ? "" : " with ",
                plain ? "" : sym->name, (long long)least, (long long)most);
}

/* Finds the value of every symbol; plain dimensions first. */
static tw_status bind(tw_session *s, const tw_tensor *inputs) {
    const tw_module *m = s->module;
    tw_status status = TW_OK;
    for (int32_t i = 0; i < m->symbol_count; i++) s->dims[i] = -1;
    for (int32_t i = 0; i < m->input_count && !status; i++) {
        const tw_info *info = &m->inputs[i];
        status = check_kind("input", i, info, &inputs[i]);
        for (int32_t d = 0; d < info->rank && !status; d++) {
            int64_t expected = info->dims[d], given = inputs[i].shape[d];
            linear plain = {i, d, (int32_t)(-1 - expected), 1, 0, NULL};
            if (expected >= 0 && given != expected)
                return wrong_dim("input", i, info, d, given, expected, "");
            if (expected < 0 && expected != TW_DIM_COMPUTED)
                status = bind_linear(s, inputs, plain, m->symbols[plain.symbol].name);
        }
    }
    for (const linear *l = m->linears; l < m->linears + m->linear_count && !status; l++)
        status = bind_linear(s, inputs, *l, l->formula);
    return status;
}

/* The shapes of the outputs and the arena's size, once the symbols are bound. */
static tw_status infer(tw_session *s, int64_t *arena_bytes) {
    const tw_module *m = s->module;
    *arena_bytes = m->arena_bytes;
    if (m->shapes) {
        int32_t code = m->shapes(s->dims, s->shapes, arena_bytes);
        if (code || *arena_bytes < 0)
            return fail(TW_ERROR_PROGRAM, "the model refuses these dimensions (code %d): they ask for "
                        "more memory than any machine has", code);
    }
    for (int32_t i = 0, at = 0; i < m->output_count; i++)
        for (int32_t d = 0; d < m->outputs[i].rank; d++, at++) {
            int64_t dim = m->outputs[i].dims[d];
            if (dim == TW_DIM_DATA_DEPENDENT) s->shapes[at] = dim;
            else if (dim != TW_DIM_COMPUTED) s->shapes[at] = dim >= 0 ? dim : s->dims[-1 - dim];
        }
    return TW_OK;
}

static tw_status grow_arena(tw_session *s, int64_t bytes) {
    release(s->call.arena, (size_t)s->arena_bytes);
    s->arena_bytes = 0;
    s->call.arena = allocate((size_t)bytes);
    if (!s->call.arena)
        return fail(TW_ERROR_MEMORY, "out of memory: these shapes need an arena of %lld bytes",
                    (long long)bytes);
    s->arena_bytes = bytes;
    return TW_OK;
}

/* Does only the run tell the shape of this output? */
static bool is_data_dependent(const tw_info *info) {
    for (int32_t d = 0; d < info->rank; d++)
        if (info->dims[d] == TW_DIM_DATA_DEPENDENT) return true;
    return false;
}

/* ---- Running ---------------------------------------------------------------------------------- */

static tw_status run(tw_session *s, const tw_tensor *inputs, const tw_tensor *outputs) {
    const tw_module *m = s->module;
    int64_t arena_bytes;
    tw_status status;
    s->ran = false;
    if (!module_is_unchanged(m))
        return fail(TW_ERROR_FILE, "its file was written to since: load it again");
    if ((status = bind(s, inputs)) || (status = infer(s, &arena_bytes))) return status;
    for (int32_t i = 0; i < m->input_count; i++) {
        if ((status = check_data("input", i, &m->inputs[i], &inputs[i]))) return status;
        s->inputs[i] = inputs[i].data;
    }
    for (int32_t i = 0, at = 0; i < m->output_count; i++) {
        const tw_info *info = &m->outputs[i];
        if (is_data_dependent(info)) {
            at += info->rank;
            continue;
        }
        if ((status = check_kind("output", i, info, &outputs[i]))) return status;
        for (int32_t d = 0; d < info->rank; d++, at++)
            if (outputs[i].shape[d] != s->shapes[at])
                return wrong_dim("output", i, info, d, outputs[i].shape[d], s->shapes[at], "");
        if ((status = check_data("output", i, info, &outputs[i]))) return status;
        s->outputs[i] = outputs[i].data;
    }
    if (arena_bytes > s->arena_bytes && (status = grow_arena(s, arena_bytes))) return status;
    COMMIT_STACK();
    int32_t code = m->run(&s->call);
    if (code == -1) return TW_ERROR_MEMORY;     /* `provide` has said why */
    if (code == -2) return TW_ERROR_INPUT;      /* and here `refuse` */
    if (code) return fail(TW_ERROR_PROGRAM, "the model's program stopped with code %d", code);
    if (m->shapes) m->shapes(s->dims, s->shapes, &arena_bytes);
    s->ran = true;
    return TW_OK;
}

static tw_status enter(tw_session *s) {
    if (atomic_flag_test_and_set_explicit(&s->busy, memory_order_acquire))
        return fail(TW_ERROR_BUSY, "the session is in use by another thread: create one for each");
    return TW_OK;
}

static tw_status leave(tw_session *s, tw_status status) {
    atomic_flag_clear_explicit(&s->busy, memory_order_release);
    return status;
}

tw_status tw_run(tw_session *s, const tw_tensor *inputs, const tw_tensor *outputs) {
    tw_status status = enter(s);
    return status ? status : leave(s, run(s, inputs, outputs));
}

tw_status tw_output_shapes(tw_session *s, const tw_tensor *inputs, int64_t *shapes) {
    int64_t arena_bytes;
    tw_status status = enter(s);
    if (status) return status;
    if (!(status = bind(s, inputs)) && !(status = infer(s, &arena_bytes)))
        memcpy(shapes, s->shapes, (size_t)s->module->output_rank_total * sizeof *shapes);
    return leave(s, status);
}

tw_status tw_result(tw_session *s, int32_t output, tw_tensor *result) {
    const tw_module *m = s->module;
    tw_status status = enter(s);
    if (status) return status;
    if (!s->ran) return leave(s, fail(TW_ERROR_INPUT, "there is no result: nothing was run"));
    if (output < 0 || output >= m->output_count || !is_data_dependent(&m->outputs[output]))
        return leave(s, fail(TW_ERROR_INPUT, "output %d is not held by the session", output));
    int32_t at = 0;
    for (int32_t i = 0; i < output; i++) at += m->outputs[i].rank;
    const tw_info *info = &m->outputs[output];
    *result = (tw_tensor){s->buffers[output].data, s->shapes + at, info->rank, info->dtype};
    return leave(s, TW_OK);
}

int64_t tw_symbol_value(const tw_session *s, int32_t symbol) {
    return symbol >= 0 && symbol < s->module->symbol_count ? s->dims[symbol] : -1;
}

/* ---- Profiling -------------------------------------------------------------------------------- */

tw_status tw_profile(tw_session *s, int32_t on) {
    tw_status status = enter(s);
    if (status) return status;
    size_t count = (size_t)s->module->kernel_count;
    free(s->nanoseconds);
    s->nanoseconds = on ? calloc(2 * count + 1, sizeof *s->nanoseconds) : NULL;
    s->launches = s->nanoseconds ? s->nanoseconds + count : NULL;
    return leave(s, on && !s->nanoseconds ? fail(TW_ERROR_MEMORY, "out of memory") : TW_OK);
}

tw_status tw_profile_read(tw_session *s, int64_t *nanoseconds, int64_t *launches) {
    tw_status status = enter(s);
    if (status) return status;
    size_t bytes = (size_t)s->module->kernel_count * sizeof *nanoseconds;
    if (s->nanoseconds) {
        memcpy(nanoseconds, s->nanoseconds, bytes);
        memcpy(launches, s->launches, bytes);
    } else {
        memset(nanoseconds, 0, bytes);
        memset(launches, 0, bytes);
    }
    return leave(s, TW_OK);
}
