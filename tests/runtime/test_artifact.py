"""The artifact: what is written is read back; nothing damaged or foreign is accepted."""

import dataclasses
import io
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.images import (
    IDENTITY,
    compile_c,
    identity_program,
    program,
    scale_program,
    symbolic_program,
)
from tilewright.runtime import abi, artifact
from tilewright.runtime.artifact import list_sections, parse_manifest, write_artifact
from tilewright.runtime.bindings import hash_bytes, lib
from tilewright.runtime.executor import load
from tilewright.support.errors import ArtifactError


def packed(compiled):
    file = io.BytesIO()
    write_artifact(compiled, file)
    return file.getvalue()


def test_file_and_memory_hold_the_same(tmp_path):
    write_artifact(scale_program(), tmp_path / "m.tw")
    data = (tmp_path / "m.tw").read_bytes()
    assert data == packed(scale_program())
    x = np.arange(1000, dtype=np.float32)
    for source in (tmp_path / "m.tw", str(tmp_path / "m.tw"), data, bytearray(data)):
        exe = load(source, threads=1)
        np.testing.assert_array_equal(exe(x)[0], 2 * x + 3)
        assert bytes(exe.artifact()) == data


def test_misaligned_memory_is_served_by_a_copy():
    data = np.zeros(1 << 16, np.uint8)
    good = packed(scale_program())
    for shift in (1, 8, 33):
        data[shift : shift + len(good)] = np.frombuffer(good, np.uint8)
        exe = load(data[shift : shift + len(good)], threads=2)
        np.testing.assert_array_equal(exe(np.ones(1000, np.float32))[0], np.full(1000, 5))


def test_manifest_survives(tmp_path):
    compiled = symbolic_program()
    manifest = dataclasses.replace(
        compiled.manifest,
        name="näme with spaces",
        compiler="9.9",
        target="x86_64-linux-gnu",
        sources={"graph": "def f(): ..."},
        notes={"origin": ["a", 1, None]},
    )
    write_artifact(dataclasses.replace(compiled, manifest=manifest), tmp_path / "m.tw")
    assert load(tmp_path / "m.tw", threads=1).manifest == manifest


def test_weights_lie_aligned_and_are_made_once():
    made = set()

    def weight(i, offset):
        def make():
            assert i not in made
            made.add(i)
            return np.full(10 + i, i, np.float32)

        return abi.Weight(offset, 4 * (10 + i), make)

    offsets, size = abi.plan_weights([4 * (10 + i) for i in range(5)])
    assert all(o % 64 == 0 for o in offsets) and size % 64 == 0
    compiled = dataclasses.replace(
        identity_program(), weights=[weight(i, o) for i, o in enumerate(offsets)]
    )
    sections = {kind: view for kind, _, view in list_sections(packed(compiled))}
    assert made == {0, 1, 2, 3, 4}
    for i, offset in enumerate(offsets):
        stored = np.frombuffer(sections[artifact.WEIGHTS], np.float32, 10 + i, offset)
        np.testing.assert_array_equal(stored, np.full(10 + i, i))


def test_a_weight_is_made_in_parts_few_of_them_in_background():
    stored = np.random.default_rng(0).standard_normal((40, 16), np.float32)
    started, written = [], []

    def part(i):
        def make():
            started.append(i)
            assert len(started) - len(written) <= artifact.MOST_PARTS + 1
            return stored[4 * i : 4 * i + 4]

        return make

    class File(io.BytesIO):
        def write(self, data):
            if len(data) == stored[:4].nbytes:
                written.append(data)
            return super().write(data)

    weight = abi.Weight(0, stored.nbytes, [part(i) for i in range(10)])
    with File() as file:
        write_artifact(dataclasses.replace(identity_program(), weights=[weight]), file)
        sections = {kind: bytes(view) for kind, _, view in list_sections(file.getvalue())}
    assert sections[artifact.WEIGHTS] == stored.tobytes()
    assert sorted(started) == list(range(10)) and len(written) == 10


def test_weight_that_breaks_its_plan_is_our_fault():
    for weight in (abi.Weight(0, 8, np.zeros(1, np.float32)), abi.Weight(4, 4, np.zeros(1, "f4"))):
        with pytest.raises(ValueError, match="weight"):
            packed(dataclasses.replace(identity_program(), weights=[weight]))


def test_input_dimension_must_be_bindable():
    for dim in ("n // 2", "n * n", "n + m", "8 - n", "min(n, 3)"):
        tensor = abi.TensorInfo("x", "f32", (dim,))
        with pytest.raises(ValueError, match=r"is no number, symbol, or multiple of one symbol"):
            packed(program(IDENTITY, (tensor,), (), symbols=(abi.Symbol("n"), abi.Symbol("m"))))


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "m.tw"
    path.write_bytes(b"old")

    def broken():
        raise RuntimeError("cannot pack")

    weights = [abi.Weight(0, 4, broken)]
    with pytest.raises(RuntimeError, match="cannot pack"):
        write_artifact(dataclasses.replace(identity_program(), weights=weights), path)
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


# ---- Choosing code ----------------------------------------------------------------------------


def returning(value: int) -> str:
    return f"EXPORT int32_t run(tw_call *c) {{ *(float *)c->outputs[0] = {value}; return 0; }}"


def with_variants(*features):
    base = identity_program()
    variants = []
    for i, names in enumerate(features):
        code, offsets = compile_c(returning(i))
        arch = base.variants[0].arch
        if names and names[0].startswith("arch:"):
            arch, names = names[0][5:], names[1:]
        variants.append(abi.Variant(arch, names, code, offsets["run"]))
    return dataclasses.replace(base, variants=variants)


def test_first_variant_that_the_machine_has_is_chosen():
    compiled = with_variants(("no-such-feature",), ("arch:s390x",), (), ())
    exe = load(packed(compiled), threads=1)
    assert exe(np.zeros(1, np.float32))[0][0] == 2
    assert exe.variant == 2


def test_no_variant_for_this_machine_names_what_is_needed():
    with pytest.raises(ArtifactError) as caught:
        load(packed(with_variants(("avx9",), ("arch:s390x",))), threads=1)
    assert "no code for this machine" in str(caught.value)
    assert "avx9 | s390x" in str(caught.value)


def test_cpu_features_agree_with_the_kernel():
    flags = ""
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("flags"):
                flags = set(line.split(":")[1].split())
                break
    if not flags:
        pytest.skip("/proc/cpuinfo has no flags on this architecture")
    named = {"sse2": "sse2", "avx2": "avx2", "fma": "fma", "avx512f": "avx512f", "f16c": "f16c"}
    named |= {"avx512vnni": "avx512_vnni", "avx512bf16": "avx512_bf16", "bmi2": "bmi2"}
    named |= {"sse4.1": "sse4_1", "popcnt": "popcnt", "lzcnt": "abm", "amx-int8": "amx_int8"}
    for ours, theirs in named.items():
        assert bool(lib.tw_cpu_has(ours.encode())) == (theirs in flags), ours


# ---- Damage -----------------------------------------------------------------------------------


def test_every_flipped_byte_is_found():
    good = packed(scale_program())
    used = [range(64 + 40 * 4)]
    for _, _, view in list_sections(good):
        start = good.index(bytes(view))
        used.append(range(start, start + len(view)))
    count = 0
    for span in used:
        for at in (*span[:300], *span[-20:]):
            damaged = bytearray(good)
            damaged[at] ^= 0x10
            with pytest.raises(ArtifactError):
                load(bytes(damaged), threads=1)
            count += 1
    assert count > 500


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a Tilewright artifact"),
        (b"\x7fELF" + bytes(100), "not a Tilewright artifact"),
        (artifact.MAGIC + bytes(20), "cut short"),
        (artifact.MAGIC + b"\xff" * 100, "this runtime reads 4.4: compile the model again"),
    ],
)
def test_what_is_no_artifact_is_named(data, message, tmp_path):
    (tmp_path / "m.tw").write_bytes(data)
    with pytest.raises(ArtifactError, match=message):
        load(data, threads=1)
    with pytest.raises(ArtifactError, match=r"not a Tilewright artifact|cut short|reads 4\.4"):
        load(tmp_path / "m.tw", threads=1)


@pytest.mark.parametrize("version", [abi.FORMAT_VERSION - 1, abi.FORMAT_VERSION + 1])
def test_another_format_is_refused(version):
    data = bytearray(packed(symbolic_program()))
    data[8:12] = version.to_bytes(4, "little")
    told = rf"has format {version}\.4; this runtime reads 4\.4: compile the model again"
    with pytest.raises(ArtifactError, match=told):
        load(bytes(data), threads=1)


def test_cut_file_says_so():
    good = packed(scale_program())
    for size in (80, 300, 5000, len(good) - 1):
        with pytest.raises(ArtifactError, match="cut short"):
            load(good[:size], threads=1)
    with pytest.raises(ArtifactError, match="cut short or padded"):
        load(good + b"\0", threads=1)


def test_missing_file_and_folder_and_pipe(tmp_path):
    with pytest.raises(ArtifactError, match=r"cannot open .*: No such file"):
        load(tmp_path / "none.tw", threads=1)
    with pytest.raises(ArtifactError, match="is not a file"):
        load(tmp_path, threads=1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArtifactError, match="is not a file"):
        load(tmp_path / "pipe", threads=1)


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b'{"name": 3}', b"\xff\xfe", b'{"name":"m","inputs":[7],"outputs":[]}']
    + [b'{"name":"m","inputs":[{"name":"x","dtype":"f9","shape":[]}],"outputs":[]}', b"[" * 10**5],
)
def test_bad_manifest_is_an_artifact_error(text):
    with pytest.raises(ArtifactError, match="its manifest is invalid"):
        parse_manifest(text)


def test_newer_manifest_fields_are_ignored():
    text = json.dumps({"name": "m", "inputs": [], "outputs": [], "later": 1}).encode()
    assert parse_manifest(text).name == "m"


# ---- Hash -------------------------------------------------------------------------------------


def test_hash_does_not_depend_on_how_bytes_are_fed():
    rng = np.random.default_rng(0)
    data = rng.bytes(1000)
    whole = hash_bytes(data)
    for cut in (0, 1, 7, 63, 64, 65, 128, 500, 999, 1000):
        assert hash_bytes(data[:cut], data[cut:]) == whole
        assert hash_bytes(data[:cut], b"", data[cut : cut + 3], data[cut + 3 :]) == whole


def test_hash_sees_every_change():
    rng = np.random.default_rng(1)
    data = bytearray(rng.bytes(300))
    seen = {hash_bytes(bytes(data))}
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        seen.add(hash_bytes(bytes(data)))
        data[bit // 8] ^= 1 << bit % 8
    for size in range(300):
        seen.add(hash_bytes(bytes(data[:size])))
        seen.add(hash_bytes(bytes(size)))
    assert len(seen) == 1 + 2400 + 300 + 300 - 1  # the empty string was hashed twice


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="no huge pages here"
)
def test_what_is_copied_of_a_file_may_lie_on_huge_pages(tmp_path):
    weight = abi.Weight(0, 4 << 20, np.ones(1 << 20, np.float32))
    write_artifact(dataclasses.replace(identity_program(), weights=[weight]), tmp_path / "m.tw")
    exe = load(tmp_path / "m.tw", threads=1)
    at = np.frombuffer(exe.artifact(), np.uint8).ctypes.data
    flags, inside = "", False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(found[1], 16) <= at < int(found[2], 16)
        elif inside and line.startswith("VmFlags:"):
            flags = line
    assert " hg" in flags
