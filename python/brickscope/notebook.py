"""`%%brickscope` for notebooks: records the calls of a PyTorch model in a cell, and shows the report beneath it."""

import sys
from typing import Any, Dict, Iterable, List, Optional

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display

from .command import CommandError, CommandNotFound
from .recorder import record
from .run import load


def model_of(names: Dict[str, Any]) -> Any:
    """The one model among a notebook's variables. Modules of another one are part of it."""
    torch = sys.modules.get("torch")
    if torch is None:
        raise UsageError("%%brickscope records models of PyTorch, and none is imported. A program that uses llama.cpp is "
                         "recorded from outside: `brickscope run -- python program.py`")
    found = {}
    for name, value in names.items():
        if isinstance(value, torch.nn.Module) and not name.startswith("_"):
            found.setdefault(id(value), (name, value))
    inner = set()  # type: set[int]
    for _, module in found.values():
        inner.update(_inside(module.named_modules()))
    whole = [pair for key, pair in found.items() if key not in inner]
    if len(whole) == 1:
        return whole[0][1]
    if not whole:
        raise UsageError("no variable is a torch.nn.Module: make the model in an earlier cell, or `%%brickscope a.b.model` "
                         "says where it is")
    raise UsageError("which of them? `%%%%brickscope NAME`, with a NAME of %s" % ", ".join(sorted(n for n, _ in whole)))


def _inside(named: Iterable[Any]) -> Iterable[int]:
    return (id(module) for name, module in named if name)


def _show(recorder: Any) -> None:
    print("the run: %s" % recorder.path)
    if recorder.passes == 0:
        print("no pass was recorded: this cell doesn't call the model, or on another thread")
        return
    try:
        display(load(recorder.path).report())
    except (CommandNotFound, CommandError) as error:
        # The run is there all the same.
        print("no report: %s" % error)


class _Failed(Exception):
    """The cell raised an error, which IPython has shown. This one stops what runs the cells after it."""

    def _render_traceback_(self) -> List[str]:
        return ["brickscope: %s" % self]


@magics_class
class BrickscopeMagics(Magics):
    """The magics of this extension."""

    @magic_arguments()
    @argument("model", nargs="?", help="The model: a variable, such as `model` or `pipe.model`. By default the only one")
    @argument("--out", help="The run's folder, or a file with .json. By default a new folder in brickscope-runs")
    @cell_magic
    def brickscope(self, line: str, cell: str) -> None:
        """Records each call of a PyTorch model in this cell as a pass, and shows the report."""
        args = parse_argstring(self.brickscope, line)
        model = self.shell.ev(args.model) if args.model else model_of(self.shell.user_ns)
        if not hasattr(model, "named_modules"):
            raise UsageError("%s is a %s, and no torch.nn.Module" % (args.model, type(model).__name__))
        recorder = record(model, args.out)
        failure = None  # type: Optional[_Failed]
        try:
            with recorder:
                if not self.shell.run_cell(cell).success:
                    raise _Failed("the cell failed, as is said above")
        except _Failed as error:
            failure = error
        if failure is not None and not recorder.passes:
            print("no run: the cell failed before the end of a pass")
        else:
            _show(recorder)
        if failure is not None:
            raise failure


def register(shell: Any) -> None:
    """Makes `%%brickscope` known."""
    shell.register_magics(BrickscopeMagics)
