"""Files that are mapped give their pages back and keep their content."""

import gc
import re
import sys
from pathlib import Path

import pytest

from tilewright.support import mapped


def resident_file_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssFile"))


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_pages_are_given_back(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(256)) * (1 << 16))
    with path.open("rb") as file:
        view = mapped.map_file(file.fileno())
    before = resident_file_bytes()
    assert sum(view[::4096]) == 0
    assert resident_file_bytes() - before > 8 << 20
    mapped.release_pages()
    assert resident_file_bytes() - before < 1 << 20
    assert bytes(view[300:304]) == bytes(range(44, 48))


def test_what_is_no_longer_used_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"123")
    gc.collect()
    before = len(mapped._living)
    with path.open("rb") as file:
        one, two = mapped.map_file(file.fileno()), mapped.map_file(file.fileno(), 1, 2)
    assert (bytes(one), bytes(two)) == (b"123", b"23")
    mapped.release_pages()
    assert len(mapped._living) == before + 2
    del one, two
    assert len(mapped._living) == before


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_library_gives_its_pages_back_and_works_on() -> None:
    from llvmlite import binding

    def emitted() -> str:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        machine = binding.Target.from_default_triple().create_target_machine()
        text = "define i32 @f(i32 %x) {\n %y = add i32 %x, 7\n ret i32 %y\n}"
        return machine.emit_assembly(binding.parse_assembly(text))

    first, before = emitted(), resident_file_bytes()
    assert mapped.release_libraries("libllvmlite") > 50 << 20
    assert before - resident_file_bytes() > 15 << 20
    assert emitted() == first
    assert mapped.release_libraries("no library of this name") == 0


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_read_only_areas_are_those_without_pages_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The system's account of each page, which takes 10 ms to read, is not asked for it."""
    from llvmlite import binding

    binding.initialize_native_target()  # relocated constants have pages of their own by now
    accounts = Path("/proc/self/smaps").read_text()
    expected: list[tuple[int, int]] = []
    for area in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", accounts, flags=re.MULTILINE):
        head, _, about = area.partition("\n")
        if "libllvmlite" in head and re.search(r"Anonymous: +0 kB", about):
            start, end = head.split()[0].split("-")
            expected.append((int(start, 16), int(end, 16)))
    read, seen = Path.read_text, list[str]()

    def read_text(path: Path) -> str:
        seen.append(path.name)
        return read(path)

    monkeypatch.setattr(Path, "read_text", read_text)
    assert list(mapped._unchanged(["libllvmlite"])) == expected != []
    assert seen == ["maps"]


def test_files_that_are_no_libraries_have_no_such_areas(tmp_path: Path) -> None:
    path = tmp_path / "library.so"
    for content in (b"", b"text", b"\x7fELF\x01\x01" + bytes(70)):
        path.write_bytes(content)
        assert mapped._read_only(path) == []
