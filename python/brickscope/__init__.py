"""brickscope, a profiler of LLM inference, from Python.

    import brickscope

    with brickscope.record(model, "run.json"):    # a PyTorch model: each of its calls is a pass
        model.generate(ids)
    run = brickscope.load("run.json")             # or any run of the command: a path, a tag, `@` for the newest
    run.bricks, run.passes, run.spans             # as Arrow tables

In a notebook, `%load_ext brickscope`, then `%%brickscope` records a cell and shows its report. `python -m brickscope` is
the command, which wheels have with them.
"""

from typing import Any

from .command import CommandError, CommandNotFound
from .recorder import BRICKS, Recorder, annotate, brick_of, layer_of, record
from .run import Report, Run, load

__all__ = [
    "BRICKS", "CommandError", "CommandNotFound", "Recorder", "Report", "Run", "annotate", "brick_of", "layer_of", "load",
    "record",
]


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext brickscope`."""
    from . import notebook

    notebook.register(shell)
