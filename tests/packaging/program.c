/* program.c: runs an artifact on one input, as a user's program does.
 *
 *   program MODEL.tw THREADS INPUT OUTPUT      (row-major bytes of the first input and output) */
#include <stdio.h>
#include <stdlib.h>
#include "tilewright.h"

static size_t bytes(const tw_tensor *t) {
    size_t count = 1;
    for (int i = 0; i < t->rank; i++) count *= (size_t)t->shape[i];
    return count * (t->dtype == TW_F64 || t->dtype == TW_I64 ? 8 : 4);
}

static int die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, tw_error());
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    tw_module *module = tw_module_open(argv[1]);
    if (!module) return die("open");
    tw_session *session = tw_session_create(module, atoi(argv[2]));
    if (!session) return die("session");
    const tw_info *in = tw_input_info(module, 0), *out = tw_output_info(module, 0);
    tw_tensor input = {NULL, in->dims, in->rank, in->dtype}, output = {NULL, NULL, out->rank, out->dtype};
    int64_t shape[TW_MAX_RANK];
    input.data = malloc(bytes(&input));
    FILE *file = fopen(argv[3], "rb");
    if (!file || fread(input.data, 1, bytes(&input), file) != bytes(&input)) return 3;
    fclose(file);
    if (tw_output_shapes(session, &input, shape)) return die("shapes");
    output.shape = shape;
    output.data = malloc(bytes(&output));
    for (int run = 0; run < 100; run++)
        if (tw_run(session, &input, &output)) return die("run");
    file = fopen(argv[4], "wb");
    if (!file || fwrite(output.data, 1, bytes(&output), file) != bytes(&output)) return 4;
    fclose(file);
    tw_session_destroy(session);
    tw_module_close(module);
    printf("%d threads by default\n", tw_default_threads());
    return 0;
}
