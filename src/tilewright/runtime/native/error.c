/* error.c: why the last call of this thread failed, and the names of dtypes that texts need. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char text[1024];
static _Thread_local tw_status kind;

const char *tw_error(void) { return text; }
tw_status tw_error_status(void) { return kind; }

tw_status fail(tw_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return kind = status;
}

int32_t tw_abi_version(void) { return TW_ABI_VERSION; }

static const char *const dtypes[] = {
    [TW_F64] = "f64", [TW_F32] = "f32", [TW_F16] = "f16", [TW_BF16] = "bf16",
    [TW_F8E4M3] = "f8e4m3", [TW_F8E5M2] = "f8e5m2",
    [TW_F8E4M3FNUZ] = "f8e4m3fnuz", [TW_F8E5M2FNUZ] = "f8e5m2fnuz",
    [TW_I64] = "i64", [TW_I32] = "i32", [TW_I16] = "i16", [TW_I8] = "i8",
    [TW_I4] = "i4", [TW_I2] = "i2", [TW_I1] = "i1",
    [TW_U64] = "u64", [TW_U32] = "u32", [TW_U16] = "u16", [TW_U8] = "u8",
    [TW_U4] = "u4", [TW_U2] = "u2", [TW_U1] = "u1", [TW_BOOL] = "bool",
};

const char *dtype_name(int32_t dtype) {
    int32_t count = sizeof dtypes / sizeof *dtypes;
    return dtype >= 0 && dtype < count ? dtypes[dtype] : NULL;
}
