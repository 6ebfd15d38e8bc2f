"""A model as a shared library: the C runtime with the artifact inside, for programs without Python.

In: an artifact's bytes. Out: a folder with lib<name>.so, <name>.h, tilewright.h, a C example and
<name>.tw. The system's C compiler builds it, or the one of the ziglang package.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from string import Template

from tilewright.runtime import abi
from tilewright.runtime.bindings import NATIVE, SUFFIX
from tilewright.runtime.profile import evaluate
from tilewright.support.cache import replace_file
from tilewright.support.errors import CompileError
from tilewright.support.interpreter import isolated

FLAGS = ["-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread"]

_HEADER = Template("""\
/* $name.h: the model '$title', compiled into lib$name. */
#ifndef ${guard}_H
#define ${guard}_H
#include "tilewright.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Opens the model inside the library; close it with tw_module_close.
$listing */
TW_API tw_module *${name}_open(void);

#ifdef __cplusplus
}
#endif
#endif
""")

_EMBED = Template("""\
#include "$name.h"
#ifdef __APPLE__
#define SECTION ".const_data"
#define SYMBOL(name) "_" #name
#else
#define SECTION ".section .rodata"
#define SYMBOL(name) #name
#endif
__asm__(SECTION "\\n.balign 4096\\n" SYMBOL(tw_embedded) ":\\n.incbin \\"$name.tw\\"\\n"
        SYMBOL(tw_embedded_end) ":\\n.byte 0\\n.text\\n");
extern const unsigned char tw_embedded[] __attribute__((visibility("hidden")));
extern const unsigned char tw_embedded_end[] __attribute__((visibility("hidden")));

tw_module *${name}_open(void) {
    return tw_module_open_memory(tw_embedded, (size_t)(tw_embedded_end - tw_embedded));
}
""")

_EXAMPLE = Template("""\
/* example.c: run '$title' on raw files.
 *
 *   cc example.c -L. -l$name -Wl,-rpath,'$$ORIGIN' -o example
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
        if (!(outputs[i].data = calloc(1, bytes(&outputs[i]) + 1))) return no_memory(&outputs[i]);
        shape += info->rank;
    }

    if (tw_run(session, inputs, outputs)) return die("run");

    for (int i = 0; i < OUTPUTS; i++) {
        char path[32];
        snprintf(path, sizeof path, "output%d.bin", i);
        FILE *file = fopen(path, "wb");
        if (file) {
            fwrite(outputs[i].data, 1, bytes(&outputs[i]), file);
            fclose(file);
        }
        printf("%s: %zu bytes -> %s\\n", tw_output_info(module, i)->name, bytes(&outputs[i]), path);
        free(outputs[i].data);
    }
    for (int i = 0; i < INPUTS; i++) free(inputs[i].data);
    tw_session_destroy(session);
    tw_module_close(module);
    return 0;
}
""")


def find_c_compiler() -> list[str]:
    """The command of a C compiler: `$CC`, cc, gcc, clang, or ziglang's. Raises CompileError."""
    for command in (os.environ.get("CC"), "cc", "gcc", "clang"):
        words = shlex.split(command or "")
        if words and shutil.which(words[0]):
            return words
    if importlib.util.find_spec("ziglang"):
        start = "import runpy; runpy.run_module('ziglang', run_name='__main__', alter_sys=True)"
        return [*isolated(start, ["ziglang"]), "cc", "-mcpu=baseline"]  # else for this CPU
    raise CompileError(
        "cannot build a library", "there is no C compiler", remedy="pip install ziglang"
    )


def export_library(artifact: memoryview, manifest: abi.Manifest, folder: Path) -> Path:
    """Write the library and what belongs to it into `folder`, which is made if need be."""
    name = re.sub(r"\W", "_", manifest.name, flags=re.ASCII) or "model"
    name = name if not name[0].isdigit() else f"model_{name}"
    least = {s.name: max(1, s.minimum) for s in manifest.symbols}
    words = {
        "name": name,
        "title": _comment(manifest.name),
        "guard": name.upper(),
        "listing": "\n".join(
            f" *   {what} {i}  {_comment(str(tensor))}"
            for what, tensors in (("input ", manifest.inputs), ("output", manifest.outputs))
            for i, tensor in enumerate(tensors)
        ),
        "inputs": str(len(manifest.inputs)),
        "outputs": str(len(manifest.outputs)),
        "dims": ", ".join(
            "{" + ", ".join(str(evaluate(d, least)) for d in t.shape or (0,)) + "}"
            for t in manifest.inputs
        )
        or "{0}",
    }
    folder.mkdir(parents=True, exist_ok=True)
    with replace_file(folder / f"{name}.tw") as file:
        file.write(artifact)
    shutil.copyfile(NATIVE / "tilewright.h", folder / "tilewright.h")
    (folder / f"{name}.h").write_text(_HEADER.substitute(words))
    (folder / "example.c").write_text(_EXAMPLE.substitute(words))
    with tempfile.TemporaryDirectory() as scratch:
        embed = Path(scratch) / "embed.c"
        embed.write_text(_EMBED.substitute(words))
        sources = sorted(str(path) for path in NATIVE.glob("*.c"))
        command = [
            *find_c_compiler(),
            *FLAGS,
            "-iquote.",  # what lies in the folder is no system header
            "-o",
            f"lib{name}{SUFFIX}",
            str(embed),
            *sources,
        ]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise CompileError("cannot build a library", f"the C compiler failed:\n{done.stderr}")
    return folder


def _comment(text: str) -> str:
    """Text that cannot end a C comment or a line of it."""
    return " ".join(text.replace("*/", "* /").split())
