"""The texts of what is written with a model's library: C, pkg-config and CMake files.

Templates of `string.Template`; `export` fills them in. Those in C say tw_run and tw_module where
the model's name will stand (`amalgamation.renamed`).
"""

from __future__ import annotations

from string import Template

HEADER = Template("""\
/* $name.h: the model '$title', compiled by Tilewright.
 *
$listing
 *
 *   tw_module   the model: immutable, may be shared by threads
 *   tw_session  what one run needs: arena, scratch, threads; one run at a time per session
 *
 *   tw_module *module = ${name}_open();
 *   tw_session *session = tw_session_create(module, 2);
 *   if (!session || tw_run(session, inputs, outputs)) fputs(tw_error(), stderr);
 *
 * A function that fails returns NULL or a non-zero tw_status; tw_error() says why.
 * After a fork, the child may use a session that was not in a run (alone, without its threads), and
 * create others.
 */
#ifndef ${name}_H
#define ${name}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef TW_API
#ifdef _WIN32
#define TW_API
#else
#define TW_API __attribute__((visibility("default")))
#endif
#endif

$types
$functions
/* The model; close it with tw_module_close. NULL: this machine cannot run it, or has no memory. */
TW_API tw_module *${name}_open(void);
$call
#ifdef __cplusplus
}
#endif
#endif
""")

# For models each of whose sizes is a number or an argument.
CALL = Template("""
/* A run on dense row-major arrays of these sizes. */
static inline tw_status ${name}_call(tw_session *session$arguments) {
$shapes
    const tw_tensor inputs[] = {$inputs};
    const tw_tensor outputs[] = {$outputs};
    return tw_run(session, inputs, outputs);
}
""")

OPEN = Template("""
tw_module *${name}_open(void) { return tw_module_open_memory(EMBEDDED, $size); }
""")

# The assembler copies the file: a compiler would need minutes for large ones.
EMBED = Template("""
#ifdef __APPLE__
#define SECTION ".const_data"
#define SYMBOL(name) "_" #name
#else
#define SECTION ".section .rodata"
#define SYMBOL(name) #name
#endif
__asm__(SECTION "\\n.balign 4096\\n" SYMBOL(tw_embedded) ":\\n.incbin \\"$name.tw\\"\\n.text\\n");
extern const unsigned char tw_embedded[] __attribute__((visibility("hidden")));
#define EMBEDDED tw_embedded
""")

PKG_CONFIG = Template("""\
prefix=$${pcfiledir}/../..
libdir=$${prefix}/lib
includedir=$${prefix}/include

Name: $name
Description: the model '$plain', compiled by Tilewright
Version: $version
Cflags: -I$${includedir}
Libs: -L$${libdir} -l$name$threads
""")

CMAKE = Template("""\
# find_package($name) gives the target $name::$name.
if(TARGET $name::$name)
  return()
endif()
$dependency
get_filename_component(_${name}_prefix "$${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
add_library($name::$name $linkage IMPORTED)
set_target_properties($name::$name PROPERTIES
  IMPORTED_LOCATION "$${_${name}_prefix}/lib/$file"
  INTERFACE_INCLUDE_DIRECTORIES "$${_${name}_prefix}/include"
  INTERFACE_LINK_LIBRARIES "$libraries")
unset(_${name}_prefix)
""")

CMAKE_VERSION = Template("""\
set(PACKAGE_VERSION "$version")
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
""")

EXAMPLE = Template("""\
/* example.c: run '$title' on raw files.
 *
 *   $build
 *   ./example input0.bin input1.bin ...      (row-major bytes; a missing file means zeros)
 *
 * Each output is written to output<i>.bin. Symbolic dimensions have the least size here. */
#include <stdio.h>
#include <stdlib.h>
#include "$name.h"

static int bits(int dtype) {
    switch (dtype) {
        case TW_F64: case TW_I64: case TW_U64: return 64;
        case TW_F32: case TW_I32: case TW_U32: return 32;
        case TW_F16: case TW_BF16: case TW_I16: case TW_U16: return 16;
        case TW_I4: case TW_U4: return 4;
        case TW_I2: case TW_U2: return 2;
        case TW_I1: case TW_U1: return 1;
        default: return 8;
    }
}

static size_t bytes(const tw_tensor *t) {
    size_t elements = 1;
    for (int i = 0; i < t->rank; i++) elements *= (size_t)t->shape[i];
    return (elements * (size_t)bits(t->dtype) + 7) / 8;
}

/* Does only a run tell its shape? */
static int is_open(const tw_info *info) {
    for (int i = 0; i < info->rank; i++)
        if (info->dims[i] == TW_DIM_DATA_DEPENDENT) return 1;
    return 0;
}

static int die(const char *what) {
    fprintf(stderr, "%s: %s\\n", what, tw_error());
    return 1;
}

static int no_memory(const tw_tensor *t) {
    fprintf(stderr, "out of memory: a tensor of %zu bytes\\n", bytes(t));
    return 1;
}

int main(int argc, char **argv) {
    tw_module *module = ${name}_open();
    if (!module) return die("open");
    tw_session *session = tw_session_create(module, 0);
    if (!session) return die("session");

    enum { INPUTS = $inputs, OUTPUTS = $outputs };
    tw_tensor inputs[INPUTS + 1], outputs[OUTPUTS + 1];
    int64_t dims[INPUTS + 1][TW_MAX_RANK] = {$dims};
    int64_t shapes[(OUTPUTS + 1) * TW_MAX_RANK], *shape = shapes;

    for (int i = 0; i < INPUTS; i++) {
        const tw_info *info = tw_input_info(module, i);
        inputs[i] = (tw_tensor){NULL, dims[i], info->rank, info->dtype};
        if (!(inputs[i].data = calloc(1, bytes(&inputs[i]) + 1))) return no_memory(&inputs[i]);
        FILE *file = i + 1 < argc ? fopen(argv[i + 1], "rb") : NULL;
        if (file) {
            if (fread(inputs[i].data, 1, bytes(&inputs[i]), file) != bytes(&inputs[i]))
                fprintf(stderr, "%s is short of %zu bytes\\n", argv[i + 1], bytes(&inputs[i]));
            fclose(file);
        }
    }

    if (tw_output_shapes(session, inputs, shapes)) return die("shapes");
    for (int i = 0; i < OUTPUTS; i++) {
        const tw_info *info = tw_output_info(module, i);
        outputs[i] = (tw_tensor){NULL, shape, info->rank, info->dtype};
        shape += info->rank;
        if (is_open(info)) continue;    /* the session will hold it */
        if (!(outputs[i].data = calloc(1, bytes(&outputs[i]) + 1))) return no_memory(&outputs[i]);
    }

    if (tw_run(session, inputs, outputs)) return die("run");

    for (int i = 0; i < OUTPUTS; i++) {
        const tw_info *info = tw_output_info(module, i);
        char path[32];
        if (is_open(info) && tw_result(session, i, &outputs[i])) return die("result");
        snprintf(path, sizeof path, "output%d.bin", i);
        FILE *file = fopen(path, "wb");
        if (file) {
            fwrite(outputs[i].data, 1, bytes(&outputs[i]), file);
            fclose(file);
        }
        printf("%s: %zu bytes -> %s\\n", info->name, bytes(&outputs[i]), path);
        if (!is_open(info)) free(outputs[i].data);
    }
    for (int i = 0; i < INPUTS; i++) free(inputs[i].data);
    tw_session_destroy(session);
    tw_module_close(module);
    return 0;
}
""")
