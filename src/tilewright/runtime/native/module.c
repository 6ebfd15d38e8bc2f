/* module.c: opens an artifact, checks every byte and field of it, maps its code executable.
 *
 * The layout is described in runtime/artifact.py, which writes it. Nothing is trusted: each section
 * is hashed, each count and length is bounded by the bytes that are there, before it is used. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 64, SECTION_BYTES = 40, FORMAT = 4, MAX_SECTIONS = 64 };
enum { SECTION_PROGRAM = 1, SECTION_MANIFEST, SECTION_WEIGHTS, SECTION_CODE };
#define MAGIC "\x93TILEWR\n"

#define NONE UINT64_MAX                 /* an absent code offset */
#define MAX_FACTOR ((int64_t)1 << 16)
#define COUNT_AT 32                     /* of the number of sections, in the header */
#define LARGE ((size_t)32 << 20)        /* bytes of weights that are mapped, not copied */
#define MAX_GAP 65536                   /* the largest page that a section may be aligned to */
#define MAX_ARENA ((uint64_t)1 << 44)
#define MAX_SCRATCH ((uint64_t)1 << 32)
#ifndef MAP_NORESERVE                   /* a hint that FreeBSD lacks */
#define MAP_NORESERVE 0
#endif

typedef struct section {
    uint32_t kind, index;
    uint64_t offset, size, hash, reserved;
} section;

typedef struct variant {
    const char *arch, *features;
    uint32_t code;
    uint64_t run, shapes;
} variant;

/* ---- Reading fields: a cursor that never leaves its section ---------------------------------- */

typedef struct cursor {
    const uint8_t *at, *end;
    bool broken;                        /* once set, every read gives zeros */
} cursor;

static const uint8_t *take(cursor *c, size_t bytes) {
    if (c->broken || bytes > (size_t)(c->end - c->at)) {
        c->broken = true;
        return NULL;
    }
    c->at += bytes;
    return c->at - bytes;
}

static uint32_t take_u32(cursor *c) {
    uint32_t value = 0;
    const uint8_t *bytes = take(c, sizeof value);
    if (bytes) memcpy(&value, bytes, sizeof value);
    return value;
}

static uint64_t take_u64(cursor *c) {
    uint64_t value = 0;
    const uint8_t *bytes = take(c, sizeof value);
    if (bytes) memcpy(&value, bytes, sizeof value);
    return value;
}

/* A length, that many bytes, and a NUL which the length does not count. */
static const char *take_string(cursor *c) {
    size_t length = take_u32(c);
    const char *text = (const char *)take(c, length + 1);
    if (!text) return "";
    if (text[length] || strlen(text) != length) c->broken = true;
    return c->broken ? "" : text;
}

/* A count of entries that occupy at least `least` bytes each. */
static int32_t take_count(cursor *c, size_t least) {
    uint32_t count = take_u32(c);
    if (c->broken || count > (size_t)(c->end - c->at) / least) c->broken = true;
    return c->broken ? 0 : (int32_t)count;
}

static uint64_t hash_of(const void *bytes, size_t size) {
    tw_hash hash = {0};
    tw_hash_feed(&hash, bytes, size);
    return tw_hash_finish(&hash);
}

/* ---- The header and its section table -------------------------------------------------------- */

static tw_status check_sections(const tw_module *m, section *sections, uint32_t *count) {
    cursor c = {m->bytes, m->bytes + m->size, false};
    const uint8_t *start = take(&c, 8);
    if (!start || memcmp(start, MAGIC, 8))
        return fail(TW_ERROR_FILE, "not a Tilewright artifact");
    uint32_t format = take_u32(&c), abi = take_u32(&c);
    uint64_t file_bytes = take_u64(&c), header_hash = take_u64(&c);
    *count = take_u32(&c);
    take(&c, HEADER_BYTES - (size_t)(c.at - m->bytes));
    if (c.broken) return fail(TW_ERROR_FILE, "the artifact is cut short: its header is incomplete");
    if (format != FORMAT || abi != TW_ABI_VERSION)
        return fail(TW_ERROR_FILE, "the artifact has format %u.%u; this runtime reads %d.%d: "
                    "compile the model again", format, abi, FORMAT, TW_ABI_VERSION);
    if (file_bytes != m->size)
        return fail(TW_ERROR_FILE, "the artifact is cut short or padded: it has %zu bytes, its "
                    "header says %llu", m->size, (unsigned long long)file_bytes);
    const uint8_t *table = c.at;
    if (*count > MAX_SECTIONS || !take(&c, (size_t)*count * SECTION_BYTES))
        return fail(TW_ERROR_FILE, "the artifact's section table is damaged");
    uint8_t header[HEADER_BYTES];       /* hashed with the hash itself as zero */
    memcpy(header, m->bytes, sizeof header);
    memset(header + 24, 0, 8);
    tw_hash hash = {0};
    tw_hash_feed(&hash, header, sizeof header);
    tw_hash_feed(&hash, table, (size_t)*count * SECTION_BYTES);
    if (tw_hash_finish(&hash) != header_hash)
        return fail(TW_ERROR_FILE, "the artifact's header is damaged (its hash differs)");
    memcpy(sections, table, (size_t)*count * SECTION_BYTES);
    uint64_t end = (uint64_t)(c.at - m->bytes);     /* sections follow each other, with zeros between */
    for (uint32_t i = 0; i < *count; i++) {
        const section *s = &sections[i];
        if (s->offset < end || s->offset > m->size || s->size > m->size - s->offset ||
            s->offset - end > MAX_GAP || s->offset % ALIGNMENT)
            return fail(TW_ERROR_FILE, "section %u of the artifact is out of place", i);
        for (; end < s->offset; end++)
            if (m->bytes[end]) return fail(TW_ERROR_FILE, "the artifact is damaged before section %u", i);
        if (hash_of(m->bytes + s->offset, s->size) != s->hash)
            return fail(TW_ERROR_FILE, "section %u of the artifact is damaged (its hash differs)", i);
        end += s->size;
    }
    return end == m->size ? TW_OK : fail(TW_ERROR_FILE, "the artifact is damaged at its end");
}

/* The section of that kind, number `index` of its kind; NULL if there is none, or several. */
static const section *find(const section *all, uint32_t count, uint32_t kind, uint32_t index) {
    const section *found = NULL;
    for (uint32_t i = 0; i < count; i++)
        if (all[i].kind == kind && all[i].index == index) {
            if (found) return NULL;
            found = &all[i];
        }
    return found;
}

/* ---- The program section: io tables, symbols, kernels, code variants -------------------------- */

static tw_status read_tensor(cursor *c, tw_module *m, tw_info *info, bool output, bool computed) {
    info->name = take_string(c);
    info->dtype = (int32_t)take_u32(c);
    info->rank = (int32_t)take_u32(c);
    if (!c->broken && !dtype_name(info->dtype))
        return fail(TW_ERROR_FILE, "tensor '%.99s' has an unknown dtype", info->name);
    if (c->broken || info->rank < 0 || info->rank > TW_MAX_RANK)
        return fail(TW_ERROR_FILE, "the artifact's table of tensors is damaged");
    const uint8_t *stored = take(c, (size_t)info->rank * sizeof(int64_t));
    int64_t *dims = calloc((size_t)info->rank + 1, sizeof *dims), elements = 1;
    if (!dims) return fail(TW_ERROR_MEMORY, "out of memory");
    info->dims = dims;
    if (!stored) return fail(TW_ERROR_FILE, "the artifact's table of tensors is damaged");
    memcpy(dims, stored, (size_t)info->rank * sizeof *dims);
    for (int32_t i = 0; i < info->rank; i++) {
        bool symbolic = dims[i] < 0 && dims[i] >= -m->symbol_count;
        bool special = dims[i] == TW_DIM_COMPUTED || dims[i] == TW_DIM_DATA_DEPENDENT;
        bool linear = !output && dims[i] == TW_DIM_COMPUTED;    /* see read_linears */
        if (special ? !linear && !(output && computed) : dims[i] < 0 && !symbolic)
            return fail(TW_ERROR_FILE, "dimension %d of tensor '%.99s' is invalid", i, info->name);
        if (symbolic && !output) m->symbols[-1 - dims[i]].bound = true;
        if (dims[i] > MAX_DIM / elements)
            return fail(TW_ERROR_FILE, "tensor '%.99s' is too large", info->name);
        if (dims[i] > 0) elements *= dims[i];
    }
    return TW_OK;
}

static tw_status read_tensors(cursor *c, tw_module *m, int32_t *count, tw_info **tensors,
                              bool output, bool computed) {
    int32_t entries = take_count(c, 13);
    *tensors = calloc((size_t)entries + 1, sizeof **tensors);
    if (!*tensors) return fail(TW_ERROR_MEMORY, "out of memory");
    for (; *count < entries; ++*count) {
        tw_status status = read_tensor(c, m, &(*tensors)[*count], output, computed);
        if (status) {
            ++*count;                   /* so that its dims are freed too */
            return status;
        }
    }
    return TW_OK;
}

/* The input dimensions that are a multiple of a symbol plus a number: each has one entry. */
static tw_status read_linears(cursor *c, tw_module *m) {
    int32_t entries = take_count(c, 33), at = 0;
    if (!(m->linears = calloc((size_t)entries + 1, sizeof *m->linears)))
        return fail(TW_ERROR_MEMORY, "out of memory");
    for (int32_t i = 0; i < m->input_count; i++)
        for (int32_t d = 0; d < m->inputs[i].rank; d++) {
            if (m->inputs[i].dims[d] != TW_DIM_COMPUTED) continue;
            linear *l = &m->linears[at];
            *l = (linear){.input = i, .axis = d, .symbol = (int32_t)take_u32(c)};
            l->scale = (int64_t)take_u64(c);
            l->offset = (int64_t)take_u64(c);
            l->formula = take_string(c);
            if (c->broken || at == entries || l->symbol < 0 || l->symbol >= m->symbol_count ||
                l->scale < 1 || l->scale > MAX_FACTOR || llabs(l->offset) > MAX_FACTOR)
                return fail(TW_ERROR_FILE, "the artifact's table of input dimensions is damaged");
            m->symbols[l->symbol].bound = true;
            at++;
        }
    m->linear_count = at;
    return at == entries ? TW_OK : fail(TW_ERROR_FILE, "the artifact has too many input dimensions");
}

/* A symbol follows from a dimension of some input, or depends on data: else a run could not know it. */
static tw_status check_symbols(const tw_module *m) {
    for (const symbol *s = m->symbols; s < m->symbols + m->symbol_count; s++)
        if (s->bound == s->data_dependent || s->minimum < 0 || s->minimum > MAX_DIM || s->maximum < s->minimum)
            return fail(TW_ERROR_FILE, "symbol '%.99s' of the artifact is invalid", s->name);
    return TW_OK;
}

/* The first variant that this machine can run; the others are checked and passed over. */
static tw_status choose_variant(cursor *c, tw_module *m, variant *chosen, bool computed) {
    char wanted[512] = "";
    int32_t count = take_count(c, 30);
    m->variant = -1;
    for (int32_t i = 0; i < count; i++) {
        variant v;
        v.arch = take_string(c);
        v.features = take_string(c);
        v.code = take_u32(c);
        v.run = take_u64(c);
        v.shapes = take_u64(c);
        if (c->broken || computed != (v.shapes != NONE))
            return fail(TW_ERROR_FILE, "the artifact's table of code variants is damaged");
        if (m->variant < 0 && cpu_has_all(v.arch, v.features)) {
            m->variant = i;
            *chosen = v;
        }
        size_t used = strlen(wanted);
        if (used < sizeof wanted - 160) {
            strncat(wanted, i ? " | " : "", 4);
            strncat(wanted, v.arch, 20);
            strncat(wanted, *v.features ? " with " : "", 7);
            strncat(wanted, v.features, 110);
        }
    }
    if (c->broken || c->at != c->end)
        return fail(TW_ERROR_FILE, "the artifact's program section is damaged");
    if (m->variant < 0)
        return fail(TW_ERROR_MACHINE, "the artifact has no code for this machine; it needs: %s", wanted);
    return TW_OK;
}

static tw_status read_program(tw_module *m, const uint8_t *bytes, size_t size, variant *chosen) {
    cursor c = {bytes, bytes + size, false};
    tw_status status;
    uint64_t arena = take_u64(&c), scratch = take_u64(&c);
    uint32_t computed = take_u32(&c);
    if (arena > MAX_ARENA || scratch > MAX_SCRATCH || computed > 1)
        return fail(TW_ERROR_FILE, "the artifact asks for an impossible amount of memory");
    m->arena_bytes = (int64_t)arena;
    m->scratch_bytes = (int64_t)scratch;
    m->name = take_string(&c);
    int32_t symbols = take_count(&c, 25);
    if (!(m->symbols = calloc((size_t)symbols + 1, sizeof *m->symbols)))
        return fail(TW_ERROR_MEMORY, "out of memory");
    for (m->symbol_count = 0; m->symbol_count < symbols; m->symbol_count++) {
        symbol *s = &m->symbols[m->symbol_count];
        s->name = take_string(&c);
        s->minimum = (int64_t)take_u64(&c);
        s->maximum = (int64_t)take_u64(&c);
        s->data_dependent = take_u32(&c) != 0;
    }
    if ((status = read_tensors(&c, m, &m->input_count, &m->inputs, false, computed))) return status;
    if ((status = read_tensors(&c, m, &m->output_count, &m->outputs, true, computed))) return status;
    if ((status = read_linears(&c, m))) return status;
    for (int32_t i = 0; i < m->output_count; i++) m->output_rank_total += m->outputs[i].rank;
    int32_t kernels = take_count(&c, 5);
    if (!(m->kernels = calloc((size_t)kernels + 1, sizeof *m->kernels)))
        return fail(TW_ERROR_MEMORY, "out of memory");
    for (m->kernel_count = 0; m->kernel_count < kernels; m->kernel_count++)
        m->kernels[m->kernel_count] = take_string(&c);
    if ((status = choose_variant(&c, m, chosen, computed))) return status;
    return check_symbols(m);
}

/* ---- Mapping ---------------------------------------------------------------------------------- */

/* A copy, executable and not writable at any time: nobody can change what was checked. */
static tw_status map_code(tw_module *m, const section *s, const variant *v) {
    if (!s || !s->size || v->run >= s->size || (v->shapes != NONE && v->shapes >= s->size))
        return fail(TW_ERROR_FILE, "the artifact's code entries are invalid");
    m->code_bytes = s->size;
    m->code = mmap(NULL, s->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m->code == MAP_FAILED)
        return fail(TW_ERROR_MEMORY, "out of memory: %zu bytes of code", m->code_bytes);
    memcpy(m->code, m->bytes + s->offset, s->size);
    if (mprotect(m->code, s->size, PROT_READ | PROT_EXEC))
        return fail(TW_ERROR_MEMORY, "cannot make code executable: %s", strerror(errno));
    __builtin___clear_cache((char *)m->code, (char *)m->code + s->size);
    uint8_t *run = m->code + v->run, *shapes = v->shapes == NONE ? NULL : m->code + v->shapes;
    memcpy(&m->run, &run, sizeof run);
    memcpy(&m->shapes, &shapes, sizeof shapes);
    return TW_OK;
}

static tw_status map_weights(tw_module *m, const section *s) {
    if (!s || !s->size) return TW_OK;
    m->weights = m->bytes + s->offset;
    if ((uintptr_t)m->weights % ALIGNMENT) {
        m->weights_bytes = s->size;
        if (!(m->weights_copy = allocate(s->size)))
            return fail(TW_ERROR_MEMORY, "out of memory: %zu bytes of weights", m->weights_bytes);
        memcpy(m->weights_copy, m->weights, s->size);
        m->weights = m->weights_copy;
    } else if (m->file >= 0) on_huge_pages(m->weights, s->size);
    return TW_OK;
}

static tw_status load(tw_module *m) {
    section sections[MAX_SECTIONS];
    variant chosen = {0};
    uint32_t count = 0;
    _Static_assert(sizeof(section) == SECTION_BYTES, "the table is read in one copy");
    tw_status status = check_sections(m, sections, &count);
    if (status) return status;
    const section *program = find(sections, count, SECTION_PROGRAM, 0);
    const section *manifest = find(sections, count, SECTION_MANIFEST, 0);
    if (!program || !manifest) return fail(TW_ERROR_FILE, "the artifact lacks a section");
    m->manifest = m->bytes + manifest->offset;
    m->manifest_bytes = manifest->size;
    if ((status = read_program(m, m->bytes + program->offset, program->size, &chosen))) return status;
    if ((status = map_weights(m, find(sections, count, SECTION_WEIGHTS, 0)))) return status;
    return map_code(m, find(sections, count, SECTION_CODE, chosen.code), &chosen);
}

/* Takes over the mapping `bytes`, if it is ours, and `file` (-1: none). */
static tw_module *open_bytes(const uint8_t *bytes, size_t size, bool ours, int file) {
    tw_module *m = calloc(1, sizeof *m);
    if (!m) {
        if (ours) munmap((void *)bytes, size);
        if (file >= 0) close(file);
        return fail_null(TW_ERROR_MEMORY, "out of memory");
    }
    atomic_init(&m->references, 1);
    m->bytes = bytes;
    m->size = size;
    m->ours = ours;
    m->file = file;
    m->code = MAP_FAILED;
    if (file >= 0) fstat(file, &m->opened);
    if (!load(m)) return m;
    tw_module_close(m);
    return NULL;
}

static bool read_at(int file, uint8_t *to, size_t from, size_t until) {
    for (size_t at = from; at < until;) {
        int64_t got = pread(file, to + (at - from), until - at, (off_t)at);
        if (got <= 0) return false;
        at += (size_t)got;
    }
    return true;
}

/* Where the part of a file begins that is mapped: its weights, if they are large; else its end. What
 * the table says is checked later: here it only tells copied bytes from mapped ones. */
static size_t mapped_from(int file, size_t size) {
    struct { uint8_t header[HEADER_BYTES]; section sections[MAX_SECTIONS]; } head;
    uint32_t count;
    if (!MAPS_FILES || size < LARGE || !read_at(file, (uint8_t *)&head, 0, sizeof head)) return size;
    memcpy(&count, head.header + COUNT_AT, sizeof count);
    for (uint32_t i = 0; i < count && i < MAX_SECTIONS; i++) {
        const section *s = &head.sections[i];
        if (s->kind == SECTION_WEIGHTS && s->offset < size && s->size >= LARGE &&
            s->offset % (size_t)sysconf(_SC_PAGESIZE) == 0)
            return s->offset;
    }
    return size;
}

/* A file's bytes: copies of all but large weights, so that whoever writes to the file changes nothing
 * that was checked. */
static tw_module *open_file(const char *path, int file, size_t size) {
    size_t copied = mapped_from(file, size);
    uint8_t start[8];
    if (!read_at(file, start, 0, sizeof start) || memcmp(start, MAGIC, sizeof start))
        return fail_null(TW_ERROR_FILE, "'%.800s' is not a Tilewright artifact", path);
    if (copied > memory_limit())     /* a file with holes may be of any size */
        return fail_null(TW_ERROR_MEMORY, "out of memory: %zu bytes of '%.800s' are copied", copied, path);
    uint8_t *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED)
        return fail_null(TW_ERROR_MEMORY, "out of memory: '%.800s' has %zu bytes", path, size);
    on_huge_pages(bytes, copied);    /* a fault for each small page takes as long as the copy */
    int kept = copied < size ? duplicate(file) : -1;
    if (!read_at(file, bytes, 0, copied))
        fail(TW_ERROR_FILE, "cannot read '%.800s': it is cut short", path);
    else if (copied < size && (kept < 0 || mmap(bytes + copied, size - copied, PROT_READ,
                                                MAP_PRIVATE | MAP_FIXED, kept, (off_t)copied) == MAP_FAILED))
        fail(TW_ERROR_MEMORY, "out of memory: %zu bytes of weights of '%.800s' cannot be mapped: %s",
             size - copied, path, strerror(errno));
    else
        return open_bytes(bytes, size, true, kept);
    if (kept >= 0) close(kept);
    munmap(bytes, size);
    return NULL;
}

tw_module *tw_module_open(const char *path) {
    struct stat status;
    int file = open_to_read(path);
    if (file < 0) return fail_null(TW_ERROR_FILE, "cannot open '%.800s': %s", path, strerror(errno));
    tw_module *m = NULL;
    if (fstat(file, &status) || !S_ISREG(status.st_mode))
        fail(TW_ERROR_FILE, "'%.800s' is not a file", path);
    else if (status.st_size < HEADER_BYTES)
        fail(TW_ERROR_FILE, "'%.800s' is not a Tilewright artifact", path);
    else
        m = open_file(path, file, (size_t)status.st_size);
    close(file);
    return m;
}

tw_module *tw_module_open_memory(const void *bytes, size_t size) {
    if (!bytes) return fail_null(TW_ERROR_FILE, "not a Tilewright artifact");
    return open_bytes(bytes, size, false, -1);
}

bool module_is_unchanged(const tw_module *m) {
    struct stat now;
    return m->file < 0 ||
           (!fstat(m->file, &now) && now.st_size == m->opened.st_size &&
            same_time(&now, &m->opened));
}

void tw_module_close(tw_module *m) {
    if (!m || atomic_fetch_sub(&m->references, 1) > 1) return;
    for (int32_t i = 0; i < m->input_count; i++) free((void *)m->inputs[i].dims);
    for (int32_t i = 0; i < m->output_count; i++) free((void *)m->outputs[i].dims);
    free(m->inputs);
    free(m->outputs);
    free(m->symbols);
    free(m->linears);
    free(m->kernels);
    if (m->code != MAP_FAILED) munmap(m->code, m->code_bytes);
    release(m->weights_copy, m->weights_bytes);
    if (m->ours) munmap((void *)m->bytes, m->size);
    if (m->file >= 0) close(m->file);
    free(m);
}

/* ---- Questions about a module ------------------------------------------------------------------ */

const char *tw_module_name(const tw_module *m) { return m->name; }

const char *tw_module_manifest(const tw_module *m, size_t *size) {
    *size = m->manifest_bytes;
    return (const char *)m->manifest;
}

const void *tw_module_bytes(const tw_module *m, size_t *size) {
    *size = m->size;
    return m->bytes;
}

int32_t tw_module_variant(const tw_module *m) { return m->variant; }
int32_t tw_input_count(const tw_module *m) { return m->input_count; }
int32_t tw_output_count(const tw_module *m) { return m->output_count; }
int32_t tw_symbol_count(const tw_module *m) { return m->symbol_count; }
int32_t tw_kernel_count(const tw_module *m) { return m->kernel_count; }

#define AT(table, count) (index >= 0 && index < (count) ? (table) : NULL)
const tw_info *tw_input_info(const tw_module *m, int32_t index) {
    return AT(&m->inputs[index], m->input_count);
}
const tw_info *tw_output_info(const tw_module *m, int32_t index) {
    return AT(&m->outputs[index], m->output_count);
}
const char *tw_symbol_name(const tw_module *m, int32_t index) {
    return AT(m->symbols[index].name, m->symbol_count);
}
const char *tw_kernel_name(const tw_module *m, int32_t index) {
    return AT(m->kernels[index], m->kernel_count);
}
