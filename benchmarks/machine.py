"""The machine a table was made on, in words: processor, cores, instruction sets, caches, load."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

NOTABLE = ("avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "avx2", "fma", "avx", "sse4_2")
NOTABLE_ARM = ("sve2", "sve", "i8mm", "bf16", "asimddp", "asimd")


def describe() -> dict[str, Any]:
    """What /proc and /sys say; fields that a system does not have are left out."""
    fields, sizes = first_processor(), caches()
    flags = fields.get("flags", fields.get("Features", "")).split()
    return {
        "processor": fields.get("model name", platform.processor() or platform.machine()),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "instruction_sets": [flag for flag in (*NOTABLE, *NOTABLE_ARM) if flag in flags],
        "caches": sizes,
        "last_level_bytes": kilobytes(list(sizes.values())[-1]) * 1024 if sizes else 0,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "load_at_start": round(os.getloadavg()[0], 2),
    }


def first_processor() -> dict[str, str]:
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    block = path.read_text().split("\n\n")[0]
    pairs = (line.split(":", 1) for line in block.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def kilobytes(size: str) -> int:
    """The number in front of the K that the kernel writes."""
    return int(size.removesuffix("K"))


def caches() -> dict[str, str]:
    found = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind, level = (index / "type").read_text().strip(), (index / "level").read_text().strip()
        if kind != "Instruction":
            found[f"L{level}"] = (index / "size").read_text().strip()
    return found
