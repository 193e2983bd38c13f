"""Two copies of ggml in one process: two.py ORDER MODEL WHISPER_MODEL, where ORDER has `l` for llama.cpp, `w` for whisper.cpp."""

import sys

import llama


def whisper(path):
    import numpy
    from pywhispercpp.model import Model

    model = Model(path, n_threads=2, print_progress=False, print_realtime=False)
    sound = (numpy.sin(numpy.arange(16_000 * 2) / 50) * 0.1).astype(numpy.float32)
    return [part.text for part in model.transcribe(sound, language="en", max_tokens=20)]


for which in sys.argv[1]:
    print(repr(llama.xllamacpp(sys.argv[2]) if which == "l" else whisper(sys.argv[3])), flush=True)
