"""The kernel that looks for indices out of bounds: LLVM text, one function for each dtype.

It works like any kernel: iterations are chunks of the indices, so that the runtime spreads large
tensors over threads. An index x is outside [least, most] exactly where x - least, unsigned, is more
than most - least: one subtraction and one comparison for each.
"""

from __future__ import annotations

from tilewright.ir.dtype import DType

CHUNK = 16384  # indices that one iteration looks at
LANES = 8  # indices that one instruction looks at
# Its frame: indices, where 1 is stored if one is outside, how many, the elements from one to the
# next, the least, and the most less the least.
FRAME = (("data", "ptr"), ("found", "ptr"), ("count", "i64"), ("stride", "i64"), ("least", "i64"),
         ("span", "i64"))  # fmt: skip


def bounds_kernel(of: DType) -> tuple[str, str, tuple[str, ...]]:
    """The kernel for indices of an integer dtype: its name, its definition (without attributes) and
    what it declares."""
    narrow, name = f"i{of.bits}", f"bounds_{of.name}"
    loads = "\n".join(
        f"  %at{slot} = getelementptr i8, ptr %frame, i64 {8 * slot}\n"
        f"  %{what} = load {kind}, ptr %at{slot}, align 8"
        for slot, (what, kind) in enumerate(FRAME)
    )
    wide = f"<{LANES} x i64>"

    def extend(value: str, lanes: bool) -> str:
        kinds = (f"<{LANES} x {narrow}>", wide) if lanes else (narrow, "i64")
        how = "bitcast" if of.bits == 64 else "zext" if not of.is_signed else "sext"
        return f"{how} {kinds[0]} {value} to {kinds[1]}"

    text = f"""define internal void @{name}(ptr %frame, ptr %scratch, i64 %begin, i64 %end) #0 {{
entry:
{loads}
  %first = mul i64 %begin, {CHUNK}
  %beyond = mul i64 %end, {CHUNK}
  %last = call i64 @llvm.smin.i64(i64 %beyond, i64 %count)
  %dense = icmp eq i64 %stride, 1
  %many = sub i64 %last, %first
  %whole = and i64 %many, -{LANES}
  %lanes = select i1 %dense, i64 %whole, i64 0
  %middle = add i64 %first, %lanes
  %least1 = insertelement {wide} poison, i64 %least, i64 0
  %leasts = shufflevector {wide} %least1, {wide} poison, <{LANES} x i32> zeroinitializer
  %span1 = insertelement {wide} poison, i64 %span, i64 0
  %spans = shufflevector {wide} %span1, {wide} poison, <{LANES} x i32> zeroinitializer
  %some = icmp slt i64 %first, %middle
  br i1 %some, label %vector, label %rest
vector:
  %i = phi i64 [ %first, %entry ], [ %next, %vector ]
  %so_far = phi {wide} [ zeroinitializer, %entry ], [ %outside, %vector ]
  %p = getelementptr {narrow}, ptr %data, i64 %i
  %xs = load <{LANES} x {narrow}>, ptr %p, align {of.bits // 8}
  %xw = {extend("%xs", lanes=True)}
  %offsets = sub {wide} %xw, %leasts
  %wrong = icmp ugt {wide} %offsets, %spans
  %mask = sext <{LANES} x i1> %wrong to {wide}
  %outside = or {wide} %so_far, %mask
  %next = add nuw nsw i64 %i, {LANES}
  %more = icmp slt i64 %next, %middle
  br i1 %more, label %vector, label %rest
rest:
  %lanes_found = phi {wide} [ zeroinitializer, %entry ], [ %outside, %vector ]
  %before = call i64 @llvm.vector.reduce.or.v{LANES}i64({wide} %lanes_found)
  %left = icmp slt i64 %middle, %last
  br i1 %left, label %scalar, label %done
scalar:
  %j = phi i64 [ %middle, %rest ], [ %j_next, %scalar ]
  %found_so_far = phi i64 [ %before, %rest ], [ %found_now, %scalar ]
  %element = mul i64 %j, %stride
  %q = getelementptr {narrow}, ptr %data, i64 %element
  %x = load {narrow}, ptr %q, align {of.bits // 8}
  %w = {extend("%x", lanes=False)}
  %offset = sub i64 %w, %least
  %is_wrong = icmp ugt i64 %offset, %span
  %bit = zext i1 %is_wrong to i64
  %found_now = or i64 %found_so_far, %bit
  %j_next = add nuw nsw i64 %j, 1
  %again = icmp slt i64 %j_next, %last
  br i1 %again, label %scalar, label %done
done:
  %all = phi i64 [ %before, %rest ], [ %found_now, %scalar ]
  %clean = icmp eq i64 %all, 0
  br i1 %clean, label %out, label %tell
tell:
  store atomic i64 1, ptr %found monotonic, align 8
  br label %out
out:
  ret void
}}"""
    declared = (
        "declare i64 @llvm.smin.i64(i64, i64)",
        f"declare i64 @llvm.vector.reduce.or.v{LANES}i64({wide})",
    )
    return name, text, declared
