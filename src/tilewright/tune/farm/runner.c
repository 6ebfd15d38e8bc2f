/* runner.c: runs candidates on a board that has no Python. Compiled behind the whole runtime (see
 * program.py), as one file.
 *
 * Requests come on stdin, replies go to stdout; numbers are little-endian, of 64 bits. Arrays and
 * code are blobs, named by what is in them, so that each comes once. The one idea: every candidate
 * runs in a child of this process. Its memory is a copy of what was set up, so it finds the arrays
 * as they were, and whatever it does to them, or to itself, costs nobody else. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define VERSION 1
#define GUARD 256                       /* bytes around each buffer, and what is in them */
#define PATTERN 0xA5
#define EMPTY 20                        /* looks at the clock, the shortest of which is its cost */
#define IN_WORKSPACE ((uint64_t)1 << 63)
#define RACES 3

enum { DONE, SIGNAL, LATE, ENDED };     /* how a child ended */

typedef struct digest { uint8_t bytes[16]; } digest;
typedef struct blob { digest name; uint8_t *data; uint64_t size; struct blob *next; } blob;
typedef struct array { uint8_t *whole, *data; const blob *content; bool is_result; } array;

typedef struct plan {                   /* how long to measure, as doubles: see board.py */
    double deadline, best, sample, warm, longest, round, seconds, least, most;
    double race[RACES][2];
} plan;

typedef struct step { tw_kernel taker; void **frame; int64_t extent; } step;
typedef struct candidate { step *steps; uint64_t count; } candidate;

static blob *blobs;
static array *arrays;
static uint64_t array_count, thread_count = 1, flush_bytes;
static uint8_t *flushed;
static pool *threads;
static uint8_t *scratch;
static size_t stride;
static double clock_seconds;

/* ---- Requests and replies --------------------------------------------------------------------- */

static void give_up(const char *why) {
    fprintf(stderr, "tilewright runner: %s\n", why);
    exit(2);
}

static void *need(size_t bytes) {
    void *memory = allocate(bytes);
    if (!memory) give_up("out of memory");
    return memory;
}

static bool read_all(int file, void *to, size_t size) {
    for (uint8_t *at = to; size;) {
        ssize_t got = read(file, at, size);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += got, size -= (size_t)got;
    }
    return true;
}

static void write_all(int file, const void *from, size_t size) {
    for (const uint8_t *at = from; size;) {
        ssize_t put = write(file, at, size);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) exit(2);
        at += put, size -= (size_t)put;
    }
}

static void send_reply(const void *data, uint64_t size) {
    write_all(1, &size, sizeof size);
    write_all(1, data, size);
}

typedef struct request { const uint8_t *at, *end; } request;

static const void *take_bytes(request *c, uint64_t size) {
    if ((uint64_t)(c->end - c->at) < size) give_up("a request is cut short");
    const void *found = c->at;
    c->at += size;
    return found;
}

static uint64_t word(request *c) {
    uint64_t n;
    memcpy(&n, take_bytes(c, sizeof n), sizeof n);
    return n;
}

static blob *find_blob(const digest *name) {
    for (blob *b = blobs; b; b = b->next)
        if (!memcmp(&b->name, name, sizeof *name)) return b;
    return NULL;
}

static const blob *known(request *c) {
    const blob *b = find_blob(take_bytes(c, sizeof(digest)));
    if (!b) give_up("a request names what was not sent");
    return b;
}

static void keep(request c) {
    blob *b = need(sizeof *b);
    memcpy(&b->name, take_bytes(&c, sizeof b->name), sizeof b->name);
    b->size = (uint64_t)(c.end - c.at);
    b->data = need(b->size);
    memcpy(b->data, c.at, b->size);
    b->next = blobs;
    blobs = b;
}

static void drop(request c) {
    const digest *name = take_bytes(&c, sizeof *name);
    for (blob **b = &blobs; *b; b = &(*b)->next) {
        if (memcmp(&(*b)->name, name, sizeof *name)) continue;
        blob *gone = *b;
        *b = gone->next;
        release(gone->data, gone->size);
        release(gone, sizeof *gone);
        return;
    }
}

/* Which of these features are missing here, behind the version and the architecture. */
static void greet(request c) {
    char text[4096];
    int used = snprintf(text, sizeof text, "%d " ARCH " %d ", VERSION, (int)tw_default_threads());
    while (c.at < c.end) {
        char name[32];
        size_t length = 0;
        while (c.at < c.end && *c.at != ',') {
            if (length < sizeof name - 1) name[length++] = (char)*c.at;
            c.at++;
        }
        name[length] = 0;
        c.at += c.at < c.end;
        if (length && !tw_cpu_has(name) && (size_t)used < sizeof text - sizeof name)
            used += snprintf(text + used, sizeof text - (size_t)used, "%s,", name);
    }
    send_reply(text, (uint64_t)used);
}

/* ---- Memory ----------------------------------------------------------------------------------- */

static void restore(const array *a) {
    if (a->content->size) memcpy(a->data, a->content->data, a->content->size);
}

static void set_up(request c) {
    for (uint64_t i = 0; i < array_count; i++)
        release(arrays[i].whole, arrays[i].content->size + 2 * GUARD);
    free(arrays);
    thread_count = word(&c);
    flush_bytes = word(&c);
    array_count = word(&c);
    arrays = calloc(array_count + 1, sizeof *arrays);
    if (!arrays) give_up("out of memory");
    for (uint64_t i = 0; i < array_count; i++) {
        array *a = &arrays[i];
        a->content = known(&c);
        a->is_result = word(&c) != 0;
        a->whole = need(a->content->size + 2 * GUARD);
        memset(a->whole, PATTERN, a->content->size + 2 * GUARD);
        a->data = a->whole + GUARD;
        restore(a);
    }
    send_reply("", 0);
}

static bool is_whole(const array *a) {
    const uint8_t *before = a->whole, *after = a->data + a->content->size;
    for (int i = 0; i < GUARD; i++)
        if (before[i] != PATTERN || after[i] != PATTERN) return false;
    return true;
}

static uint8_t *executable(const blob *code) {
    uint8_t *memory = mmap(NULL, code->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) give_up("out of memory");
    memcpy(memory, code->data, code->size);
    if (mprotect(memory, code->size, PROT_READ | PROT_EXEC)) give_up("memory cannot be made executable");
    __builtin___clear_cache((char *)memory, (char *)memory + code->size);
    return memory;
}

/* ---- In a child: running a candidate ---------------------------------------------------------- */

static candidate load_candidate(request *c) {
    uint8_t *code = executable(known(c)), *workspace = need(word(c));
    candidate made = {NULL, word(c)};
    made.steps = need((made.count + 1) * sizeof *made.steps);
    for (uint64_t i = 0; i < made.count; i++) {
        step *s = &made.steps[i];
        uint8_t *taker = executable(known(c));
        s->taker = (tw_kernel)(void *)(taker + word(c));
        uint8_t *kernel = code + word(c);
        s->extent = (int64_t)word(c);
        size_t bytes = (word(c) + 4095) / 4096 * 4096;
        if (bytes > stride) stride = bytes;
        uint64_t count = word(c);
        s->frame = need((count + 1) * sizeof *s->frame);
        s->frame[0] = kernel;
        for (uint64_t n = 1; n <= count; n++) {
            uint64_t place = word(c);
            if (!(place & IN_WORKSPACE) && place >= array_count) give_up("there is no such buffer");
            s->frame[n] = place & IN_WORKSPACE ? workspace + (place & ~IN_WORKSPACE) : arrays[place].data;
        }
    }
    return made;
}

typedef struct share { const step *step; } share;

static void run_share(void *context, int32_t thread, int64_t begin, int64_t end) {
    const step *s = ((const share *)context)->step;
    s->taker(s->frame, scratch + stride * (size_t)thread, begin, end);
}

static void call_once(const candidate *c) {
    for (uint64_t i = 0; i < c->count; i++) {
        const step *s = &c->steps[i];
        share of = {s};
        if (s->extent <= 0) continue;
        if (s->extent == 1 || !threads) run_share(&of, 0, 0, s->extent);
        else pool_run(threads, run_share, &of, s->extent);
    }
}

static double seconds_now(void) { return (double)now_nanoseconds() * 1e-9; }

static double seconds_of(const candidate *c, int64_t calls) {
    double start = seconds_now();
    for (int64_t i = 0; i < calls; i++) call_once(c);
    double taken = seconds_now() - start - clock_seconds;
    return (taken > 1e-9 ? taken : 1e-9) / (double)calls;
}

static double sample(const candidate *c, int64_t calls) {
    if (flush_bytes) memset(flushed, (int)(seconds_now() * 1e3), flush_bytes);
    else if (calls > 1) seconds_of(c, 1);   /* finds what another kernel left, and wakes the threads */
    return seconds_of(c, calls);
}

static int64_t calls_for(double once, double least) {
    if (flush_bytes || once >= least) return 1;
    return (int64_t)(least / once) + 1;
}

/* The shortest of some calls: the first take up to three times as long as the others. */
static double warm(const candidate *c, const plan *p) {
    double found = sample(c, 1), end = seconds_now() + p->warm;
    while (seconds_now() < end) {
        double next = sample(c, calls_for(found, p->warm / 8));
        if (next < found) found = next;
    }
    return found;
}

static bool is_beaten(double least, uint64_t count, const plan *p, double best) {
    double factor = 0;
    for (int i = 0; i < RACES; i++)
        if ((double)count >= p->race[i][0]) factor = p->race[i][1];
    return factor > 0 && least > factor * best;
}

static uint64_t race(const candidate *c, const plan *p, double *samples) {
    double least = samples[0] = warm(c, p);
    double end = seconds_now() + p->longest;
    if (is_beaten(least, 1, p, p->best)) return 1;
    int64_t calls = calls_for(least, p->sample);
    uint64_t count = 0;
    for (least = 1e300; (double)count < p->most && !(count && is_beaten(least, count, p, p->best));) {
        double next = samples[count++] = sample(c, calls);
        if (next < least) least = next;
        if ((double)count >= p->least && seconds_now() > end) break;
    }
    return count;
}

static uint64_t take_turns(const candidate *both, uint64_t copies, const plan *p, const uint8_t *turns,
                           uint64_t count, double *samples) {
    double a = warm(&both[0], p), b = warm(&both[copies], p), end = seconds_now() + p->seconds;
    int64_t calls = calls_for(a < b ? a : b, p->round);
    for (uint64_t i = 0; i < count; i++) {
        if (i % 4 == 0 && seconds_now() > end) return i;
        samples[i] = sample(&both[(turns[i] & 1) * copies + (turns[i] >> 1)], calls);
    }
    return count;
}

/* One run, and what it left: as a whole only where that is not among the right results. */
static void run_checked(int out, const candidate *c, request right) {
    uint64_t told[3] = {0, 0, 0}, changed = 0;      /* hash, buffer written around, bytes */
    for (uint64_t i = 0; i < array_count; i++)
        if (arrays[i].is_result) restore(&arrays[i]);
    call_once(c);
    tw_hash state = {0};
    for (uint64_t i = 0; i < array_count; i++) {
        if (!is_whole(&arrays[i]) && !changed) changed = i + 1;
        if (!arrays[i].is_result) continue;
        tw_hash_feed(&state, arrays[i].data, arrays[i].content->size);
        told[2] += arrays[i].content->size;
    }
    told[0] = tw_hash_finish(&state);
    told[1] = changed;
    while (right.at < right.end)
        if (word(&right) == told[0]) told[2] = 0;
    write_all(out, told, sizeof told);
    for (uint64_t i = 0; told[2] && i < array_count; i++)
        if (arrays[i].is_result) write_all(out, arrays[i].data, arrays[i].content->size);
}

static void pin(void) {
#if defined(__linux__)
    cpu_set_t one;
    int core = sched_getcpu();
    if (thread_count > 1 || core < 0) return;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
#endif
}

static void work_as_child(int out, request c) {
    plan p;
    memcpy(&p, take_bytes(&c, sizeof p), sizeof p);
    uint64_t count = word(&c);
    request right = {take_bytes(&c, 8 * count), c.at};
    right.end = c.at;
    uint64_t codes = word(&c), copies = word(&c);
    candidate *made = need((codes * copies + 1) * sizeof *made);
    request first = c;
    for (uint64_t copy = 0; copy < copies; copy++) {
        c = first;
        for (uint64_t n = 0; n < codes; n++) made[n * copies + copy] = load_candidate(&c);
    }
    uint64_t turns = word(&c);
    const uint8_t *order = take_bytes(&c, turns);
    scratch = need(stride * thread_count + 1);
    if (thread_count > 1 && !(threads = pool_create((int32_t)thread_count))) give_up("no threads");
    if (flush_bytes) flushed = need(flush_bytes);
    clock_seconds = 1;
    for (int i = 0; i < EMPTY; i++) {
        double start = seconds_now(), taken = seconds_now() - start;
        if (taken < clock_seconds) clock_seconds = taken;
    }
    for (uint64_t n = 0; n < codes; n++) run_checked(out, &made[n * copies], right);
    double *samples = need((turns + (uint64_t)p.most + 1) * sizeof *samples);
    pin();
    uint64_t taken = turns ? take_turns(made, copies, &p, order, turns, samples) : race(made, &p, samples);
    write_all(out, &taken, sizeof taken);
    write_all(out, samples, taken * sizeof *samples);
    _exit(0);
}

/* ---- Children --------------------------------------------------------------------------------- */

static void run_in_child(request c) {
    double deadline;
    int ends[2], status;
    memcpy(&deadline, c.at, sizeof deadline);
    if (pipe(ends)) give_up("no pipe");
    pid_t child = fork();
    if (child < 0) give_up("no process");
    if (!child) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        close(ends[0]);
        work_as_child(ends[1], c);
    }
    close(ends[1]);
    uint64_t size = 16, room = 1 << 16, told[2] = {DONE, 0};
    uint8_t *answer = malloc(room);
    double end = seconds_now() + deadline;
    for (;;) {
        double left = end - seconds_now();
        struct pollfd ready = {ends[0], POLLIN, 0};
        int found = left > 0 ? poll(&ready, 1, (int)(left * 1e3) + 1) : 0;
        if (found < 0 && errno == EINTR) continue;
        if (found <= 0) {
            told[0] = LATE;
            break;
        }
        if (room - size < 1 << 15 && !(answer = realloc(answer, room *= 2))) give_up("out of memory");
        ssize_t got = read(ends[0], answer + size, room - size);
        if (got <= 0) break;
        size += (uint64_t)got;
    }
    close(ends[0]);
    if (told[0] == LATE) kill(child, SIGKILL);
    waitpid(child, &status, 0);
    if (told[0] == DONE && WIFSIGNALED(status)) told[0] = SIGNAL, told[1] = (uint64_t)WTERMSIG(status);
    else if (told[0] == DONE && WEXITSTATUS(status)) told[0] = ENDED, told[1] = (uint64_t)WEXITSTATUS(status);
    memcpy(answer, told, sizeof told);
    send_reply(answer, told[0] == DONE ? size : sizeof told);
    free(answer);
}

int main(void) {
    for (uint64_t head[2]; read_all(0, head, sizeof head);) {
        uint8_t *payload = need(head[1]);
        if (!read_all(0, payload, head[1])) return 1;
        request c = {payload, payload + head[1]};
        switch (head[0]) {
        case 'H': greet(c); break;
        case 'B': keep(c); break;
        case 'D': drop(c); break;
        case 'F': set_up(c); break;
        case 'R': run_in_child(c); break;
        default: give_up("there is no such request");
        }
        release(payload, head[1]);
    }
    return 0;
}
