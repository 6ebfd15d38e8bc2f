"""Where does somebody speak? Silero VAD, one window of 32 ms after the other.

    python -m examples.voice_activity [SOUND.wav] [--picture FILE.png]

In: a WAV file, 16 kHz, one channel, 8 or 16 bits; `sound.wav` beside this file without one. Out:
the stretches of speech, in seconds.
"""

from __future__ import annotations

import argparse
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from examples.beside import THREADS, compare, onnxruntime_session, shipped
from examples.voice_activity.picture import draw

RATE, WINDOW, BEFORE = 16000, 512, 64  # hertz; samples of a call, and of the window before it
SPEECH, SILENCE = 0.5, 0.35  # begins at this probability, ends below that one
SHORTEST, PAUSE = 8, 12  # windows: of speech, what is shorter is a noise; within speech, at most


def read_sound(path: Path) -> np.ndarray:
    """The samples, f32[n] from -1 to 1."""
    with wave.open(str(path)) as file:
        if (file.getframerate(), file.getnchannels()) != (RATE, 1) or file.getsampwidth() > 2:
            raise SystemExit(f"{path} is not a WAV file of {RATE} Hz, one channel, 8 or 16 bits")
        frames, width = file.readframes(file.getnframes()), file.getsampwidth()
    if width == 1:
        return (np.frombuffer(frames, np.uint8).astype(np.float32) - 128) / 128
    return np.frombuffer(frames, np.int16).astype(np.float32) / 32768


def speech(run: Callable[[Any, dict[str, np.ndarray]], list[Any]], sound: np.ndarray) -> np.ndarray:
    """The probability of speech in each window, f32[windows]. The model's state goes from call to
    call, as it would while somebody speaks into a microphone."""
    sound = np.concatenate([np.zeros(BEFORE, np.float32), sound])
    state, rate = np.zeros((2, 1, 128), np.float32), np.array(RATE)
    found = []
    for start in range(0, len(sound) - BEFORE - WINDOW + 1, WINDOW):
        window = sound[None, start : start + BEFORE + WINDOW]
        probability, state = run(None, {"input": window, "state": state, "sr": rate})
        found.append(probability[0, 0])
    return np.array(found)


def stretches(probabilities: np.ndarray) -> list[tuple[float, float]]:
    """Where speech begins and ends, in seconds."""
    found: list[list[int]] = []  # windows: the first, and the one after the last
    for n, probability in enumerate(probabilities):
        speaks = bool(found) and found[-1][1] == n
        if probability >= (SILENCE if speaks else SPEECH):
            if found and n - found[-1][1] <= PAUSE:
                found[-1][1] = n + 1
            else:
                found.append([n, n + 1])
    second = WINDOW / RATE
    return [(a * second, b * second) for a, b in found if b - a >= SHORTEST]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.voice_activity")
    parser.add_argument(
        "sound", nargs="?", type=Path, default=Path(__file__).with_name("sound.wav")
    )
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()

    model = shipped("silero_vad", "data/silero_vad_16k_op15.onnx", "--no-deps silero-vad")
    exe = tw.compile(model, threads=THREADS)

    sound = read_sound(arguments.sound)
    probabilities = speech(exe.run, sound)
    for begin, end in stretches(probabilities):
        print(f"speech from {begin:.2f} s to {end:.2f} s")
    if arguments.picture:
        draw(sound, probabilities, WINDOW, stretches(probabilities), RATE).save(arguments.picture)

    session = onnxruntime_session(model)
    what = f"{len(sound) / RATE:.1f} s of sound, {len(probabilities)} calls"
    compare(what, lambda: [speech(exe.run, sound)], lambda: [speech(session.run, sound)])


if __name__ == "__main__":
    main()
