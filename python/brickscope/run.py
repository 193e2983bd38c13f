"""Runs as tables. The command reads a run and says what is in it; nothing is computed here."""

import csv
import functools
import html
import json
import os
import pathlib
import tempfile
from typing import Any, Dict, List, Union

from . import command

# The columns of tables that come as CSV, which knows no types. Those of other names, of a later command, are guessed.
_WORDS = ("phase", "kind", "name", "category", "source", "shape", "ptx")
_FLAGS = ("is_disturbed", "is_left_out")
# As wide as the same columns of the tables that come as Parquet.
_SMALL = ("device", "stream", "pass", "lane", "threads", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
          "shared_mem")
_LARGE = ("tokens", "position", "start_ns", "wall_ns", "attributed_ns", "unattributed_ns", "count", "total_ns",
          "exclusive_ns", "min_ns", "max_ns", "p50_ns", "p90_ns", "p95_ns", "p99_ns", "elements", "flops", "bytes",
          "counted_spans", "cycles", "instructions", "llc_misses", "branch_misses")
_REALS = ("std_dev_ns",)

# Fields of a profile that are tables, or only mean something beside one.
_TABLES = ("devices", "lanes", "names", "passes", "parts", "requests", "spans", "tiles", "totals")

FRAMES = ("arrow", "pandas")


def load(run: Union[str, "os.PathLike[str]"] = "@", frames: str = "arrow") -> "Run":
    """A run of brickscope, whichever program recorded it.

    run     its folder or `profile.json`, its tag, the beginning of its name, or `@` for the newest, as in every command
    frames  what tables are: "arrow" for `pyarrow.Table`, or "pandas" for `pandas.DataFrame`
    """
    return Run(run, frames)


class Run:
    """A run. Its tables are read when they are first asked for. `print(run)` shows what `brickscope show` does."""

    def __init__(self, run: Union[str, "os.PathLike[str]"] = "@", frames: str = "arrow") -> None:
        if frames not in FRAMES:
            raise ValueError("frames are %s, not %r" % (" or ".join(map(repr, FRAMES)), frames))
        self._frames = frames
        # A later `chdir` must not make it another run.
        self._folder = os.getcwd()
        #: What names the run: its path, where that is known.
        self.path = os.fspath(run)
        if os.path.lexists(self.path):
            self.path = os.path.abspath(self.path)
        # An error here is better than one at the first table, and `@` must stay the run that it is now.
        out, notes = self._call("export", "--format", "csv", "--table", "passes", "--output", "-")
        self._passes = out
        told = "%s is " % self.path
        for note in notes:
            path = os.path.join(self._folder, note[len(told):])
            if note.startswith(told) and os.path.exists(path):
                self.path = path
            else:
                command.tell([note])

    def __repr__(self) -> str:
        return "brickscope.load(%r)" % self.path

    def __str__(self) -> str:
        return self._call("show")[0].decode("utf-8").rstrip("\n")

    def _call(self, verb: str, *options: str) -> Any:
        return command.call([verb, *options, "--", self.path], self._folder)

    # Tables.

    @functools.cached_property
    def passes(self) -> Any:
        """Each pass of the model: its phase, tokens and time."""
        return self._frame(_of_csv(self._passes))

    @functools.cached_property
    def bricks(self) -> Any:
        """Each brick of each phase, summed up. `exclusive_ns` is its own time, without that of bricks inside of it."""
        return self._frame(_where(self._totals, "kind", "brick"))

    @functools.cached_property
    def kernels(self) -> Any:
        """Each kernel of each phase, summed up. Kernels are inside of bricks: their times aren't to be added to those."""
        return self._frame(_where(self._totals, "kind", "kernel"))

    @functools.cached_property
    def spans(self) -> Any:
        """Each recorded span: layers, bricks and kernels."""
        return self._frame(self._of_parquet("spans"))

    @functools.cached_property
    def requests(self) -> Any:
        """Each request of a server, and what its time went to."""
        return self._frame(self._of_parquet("requests"))

    @functools.cached_property
    def intervals(self) -> Any:
        """Each interval of a request, up to a token or its end, and what was done meanwhile."""
        return self._frame(self._of_parquet("intervals"))

    @functools.cached_property
    def _totals(self) -> Any:
        return _of_csv(self._call("export", "--format", "csv", "--table", "totals", "--output", "-")[0])

    def _of_parquet(self, table: str) -> Any:
        parquet = _pyarrow("pyarrow.parquet")
        with tempfile.TemporaryDirectory(prefix="brickscope-") as folder:
            file = os.path.join(folder, "table.parquet")
            command.tell(self._call("export", "--format", "parquet", "--table", table, "--output", file)[1])
            # Not mapped: the file goes.
            return parquet.read_table(file, memory_map=False)

    def _frame(self, table: Any) -> Any:
        return table if self._frames == "arrow" else _of_pandas(table)

    # What isn't a table.

    @functools.cached_property
    def summary(self) -> Dict[str, Any]:
        """What else the profile has: model, machine, phases, rates, what was dropped, what is absent and why."""
        profile = json.loads(self._call("show", "--as", "json")[0])
        return {name: field for name, field in profile.items() if name not in _TABLES}

    @functools.cached_property
    def findings(self) -> Dict[str, Any]:
        """What slows the run down, by `brickscope findings`: `found`, and `unknown` with reasons."""
        return json.loads(self._call("findings", "--json")[0])

    def report(self) -> "Report":
        """The report. A notebook shows it."""
        return Report(self._call("report", "--output", "-")[0].decode("utf-8"))


class Report:
    """A page of HTML that needs no other file."""

    def __init__(self, page: str) -> None:
        self.html = page

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        pathlib.Path(path).write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str:
        # It stays in the notebook's file. Its scripts reach nothing of the notebook.
        return (
            '<iframe srcdoc="%s" sandbox="allow-scripts allow-downloads" title="report of brickscope" '
            'style="width:100%%;height:720px;border:0"></iframe>' % html.escape(self.html)
        )


def _pyarrow(module: str) -> Any:
    try:
        return __import__(module, fromlist=["_"])
    except ImportError as error:
        raise ImportError(
            "tables of a run need pyarrow: `pip install 'brickscope[arrow]'` (or `pip install pyarrow`)"
        ) from error


def _of_csv(text: bytes) -> Any:
    arrow, reader, compute = _pyarrow("pyarrow"), _pyarrow("pyarrow.csv"), _pyarrow("pyarrow.compute")
    kinds = [(_WORDS, arrow.string()), (_FLAGS, arrow.bool_()), (_SMALL, arrow.uint32()), (_LARGE, arrow.uint64()),
             (_REALS, arrow.float64())]
    columns: List[str] = next(csv.reader([text.split(b"\n", 1)[0].decode("utf-8")]))
    types = {name: kind for names, kind in kinds for name in names if name in columns}
    table = reader.read_csv(
        arrow.BufferReader(text),
        parse_options=reader.ParseOptions(newlines_in_values=True),
        convert_options=reader.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True,
                                              quoted_strings_can_be_null=False),
    )
    # The `'` that keeps spreadsheets from running a name as a formula.
    for name in columns:
        if name in _WORDS:
            at = columns.index(name)
            plain = compute.replace_substring_regex(table.column(at), pattern="^'", replacement="", max_replacements=1)
            table = table.set_column(at, name, plain)
    return table


def _where(table: Any, column: str, value: str) -> Any:
    return table.filter(_pyarrow("pyarrow.compute").equal(table.column(column), value))


def _of_pandas(table: Any) -> Any:
    """With pandas' own nullable types: others would make numbers with absent values imprecise."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            "frames of pandas need it: `pip install 'brickscope[pandas]'` (or `pip install pandas`)"
        ) from error
    arrow = _pyarrow("pyarrow")
    # Times are subtracted from each other, and without a sign the difference would wrap.
    for at, field in enumerate(table.schema):
        if field.name.endswith("_ns") and field.type == arrow.uint64():
            try:
                signed = table.column(at).cast(arrow.int64())
            except arrow.ArrowInvalid:
                continue
            table = table.set_column(at, field.name, signed)
    kinds = {
        arrow.uint32(): pandas.UInt32Dtype(), arrow.uint64(): pandas.UInt64Dtype(), arrow.int64(): pandas.Int64Dtype(),
        arrow.float64(): pandas.Float64Dtype(), arrow.bool_(): pandas.BooleanDtype(), arrow.string(): pandas.StringDtype(),
    }
    return table.to_pandas(types_mapper=kinds.get)
