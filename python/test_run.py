"""Tests of runs as tables and of `%%brickscope`: with a command that only notes how it was called, and with the real one
where it is built (target/debug, or what BRICKSCOPE names) and pyarrow, pandas and IPython are installed.

    python3 python/test_run.py
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
import warnings
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import brickscope  # noqa: E402
from brickscope import command  # noqa: E402
import test_brickscope as modules  # noqa: E402

RUN = HERE.parent / "tests/data/import/brickscope-py.json"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target")).absolute()
PROGRAM = os.environ.get("BRICKSCOPE") or str(TARGET / "debug/brickscope")


def has(*names):
    return all(importlib.util.find_spec(name) for name in names)


def parquet():
    """Whether the real command is here, with the feature."""
    try:
        done = subprocess.run([PROGRAM, "export", "--format", "parquet", "--output", "-", "--", str(RUN)],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    except OSError:
        return False
    return done.returncode == 0


IS_REAL = has("pyarrow") and parquet()
NOT_REAL = "no pyarrow, or no command with the feature parquet at %s" % PROGRAM

FAKE = """#!/bin/sh
for word; do printf '[%s]' "$word"; done >> "$CALLS"
echo >> "$CALLS"
[ -z "$FAKE_NOTE" ] || printf "$FAKE_NOTE" >&2
[ -z "$FAKE_ERROR" ] || { printf "$FAKE_ERROR" >&2; exit 1; }
case $1 in
    show) [ "$2" = --as ] && echo '{"model": {"name": "m"}, "spans": {}, "passes": []}' || echo 'a screen' ;;
    findings) echo '{"found": [], "unknown": []}' ;;
    report) echo '<p title="a">&amp;</p>' ;;
    export) echo 'phase,wall_ns' ;;
esac
"""


class Place(unittest.TestCase):
    """A folder to work in, with its own environment."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)
        patch = mock.patch.dict(os.environ)
        patch.start()
        self.addCleanup(patch.stop)

    def program(self, place, text=FAKE):
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return str(path)


class WithACommandOfOurOwn(Place):
    def setUp(self):
        super().setUp()
        os.environ["BRICKSCOPE"] = self.program("fake")
        os.environ["CALLS"] = str(self.folder / "calls")

    def calls(self):
        return (self.folder / "calls").read_text().splitlines()

    def test_a_run_is_asked_for_by_the_command(self):
        run = brickscope.load("-x")
        self.assertEqual(str(run), "a screen")
        self.assertEqual(run.summary, {"model": {"name": "m"}})
        self.assertEqual(run.findings, {"found": [], "unknown": []})
        self.assertEqual(run.report().html, '<p title="a">&amp;</p>\n')
        self.assertEqual(self.calls(), [
            "[export][--format][csv][--table][passes][--output][-][--][-x]", "[show][--][-x]",
            "[show][--as][json][--][-x]", "[findings][--json][--][-x]", "[report][--output][-][--][-x]",
        ])

    def test_a_path_stays_that_path(self):
        (self.folder / "run.json").write_text("{}")
        run = brickscope.load(pathlib.Path("run.json"))
        os.chdir("/")
        str(run)
        self.assertEqual(self.calls()[-1], "[show][--][%s]" % (self.folder / "run.json"))
        self.assertEqual(repr(run), "brickscope.load(%r)" % str(self.folder / "run.json"))

    def test_the_newest_run_stays_that_run(self):
        (self.folder / "brickscope-runs/a").mkdir(parents=True)
        os.environ["FAKE_NOTE"] = "note: @ is brickscope-runs/a\n"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run = brickscope.load()
        os.chdir("/")
        self.assertEqual(run.path, str(self.folder / "brickscope-runs/a"))

    def test_notes_are_passed_on(self):
        os.environ["FAKE_NOTE"] = "note: this profile is\\n      inconsistent\n"
        with self.assertWarnsRegex(UserWarning, "this profile is inconsistent"):
            brickscope.load("x")

    def test_what_the_command_says_is_the_error(self):
        os.environ["FAKE_ERROR"] = "note: a\nbrickscope: x: no such file\n"
        with self.assertRaisesRegex(brickscope.CommandError, "^x: no such file$"):
            brickscope.load("x")
        os.environ["FAKE_ERROR"] = "\n"
        with self.assertRaisesRegex(brickscope.CommandError, "ended with 1 and said nothing"):
            brickscope.load("x")

    def test_frames_are_of_two_kinds(self):
        with self.assertRaisesRegex(ValueError, "'arrow' or 'pandas', not 'polars'"):
            brickscope.load("x", frames="polars")

    def test_without_pyarrow_tables_say_what_they_need(self):
        run = brickscope.load("x")
        with mock.patch.dict(sys.modules, {"pyarrow": None, "pyarrow.parquet": None}):
            for table in ("passes", "bricks", "kernels", "spans", "requests", "intervals"):
                with self.assertRaisesRegex(ImportError, r"'brickscope\[arrow\]'` \(or `pip install pyarrow`"):
                    getattr(run, table)

    def test_a_report_in_a_notebook_is_whole_and_shut_in(self):
        shown = brickscope.Report('<script>"&amp;"</script>')._repr_html_()
        self.assertIn('srcdoc="&lt;script&gt;&quot;&amp;amp;&quot;&lt;/script&gt;"', shown)
        self.assertIn('sandbox="allow-scripts allow-downloads"', shown)
        brickscope.Report("<p>").save(self.folder / "page.html")
        self.assertEqual((self.folder / "page.html").read_text(), "<p>")

    def test_python_m_brickscope_is_the_command(self):
        environment = dict(os.environ, PYTHONPATH=str(HERE))
        done = subprocess.run([sys.executable, "-m", "brickscope", "show", "x y"], env=environment,
                              stdout=subprocess.PIPE, check=True)
        self.assertEqual((done.stdout, self.calls()), (b"a screen\n", ["[show][x y]"]))


class WhereTheCommandIs(Place):
    def test_the_variable_comes_first_then_the_installed_one_then_the_path(self):
        installed, on_path = self.program("site/bin/brickscope"), self.program("path/brickscope")
        os.environ["PATH"] = str(self.folder / "path")
        os.environ["BRICKSCOPE"] = named = self.program("named")
        with mock.patch.object(command, "_folders", lambda: iter([str(self.folder / "site/bin")])):
            self.assertEqual(command.find(), named)
            del os.environ["BRICKSCOPE"]
            self.assertEqual(command.find(), installed)
            os.unlink(installed)
            self.assertEqual(command.find(), on_path)
            os.unlink(on_path)
            with self.assertRaisesRegex(brickscope.CommandNotFound, "isn't installed.*BRICKSCOPE"):
                command.find()
        os.environ["BRICKSCOPE"] = "/nonexistent"
        with self.assertRaisesRegex(brickscope.CommandNotFound, "BRICKSCOPE names /nonexistent"):
            command.find()

    def test_it_is_beside_a_package_that_was_installed_elsewhere(self):
        with mock.patch.object(command, "__file__", str(self.folder / "lib/python3.9/site-packages/brickscope/command.py")):
            self.assertEqual(next(command._folders()), str(self.folder / "bin"))
        with mock.patch.object(command, "__file__", str(self.folder / "target/brickscope/command.py")):
            self.assertEqual(next(command._folders()), str(self.folder / "target/bin"))
        # Not even that far from the root.
        with mock.patch.object(command, "__file__", "/site-packages/brickscope/command.py"):
            self.assertEqual(next(command._folders()), "/site-packages/bin")

    def test_a_program_of_another_machine_is_an_error_in_words(self):
        environment = dict(os.environ, PYTHONPATH=str(HERE), BRICKSCOPE=self.program("other", "\x7fELF of another machine"))
        done = subprocess.run([sys.executable, "-m", "brickscope"], env=environment, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr.decode(), "^brickscope: .*other can't be run: ")

    def test_without_it_python_m_brickscope_says_so(self):
        environment = dict(os.environ, PYTHONPATH=str(HERE), BRICKSCOPE="/nonexistent")
        done = subprocess.run([sys.executable, "-m", "brickscope"], env=environment, stderr=subprocess.PIPE, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, b"brickscope: BRICKSCOPE names /nonexistent, which can't be run\n"))


@unittest.skipUnless(IS_REAL, NOT_REAL)
class WithTheRealCommand(Place):
    def setUp(self):
        super().setUp()
        os.environ["BRICKSCOPE"] = PROGRAM

    def profile(self):
        return json.loads(RUN.read_text())

    def save(self, profile, name="a"):
        folder = self.folder / "brickscope-runs" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "profile.json").write_text(json.dumps(profile))
        return folder

    def test_tables_are_those_of_the_profile(self):
        profile, run = self.profile(), brickscope.load(RUN)
        self.assertEqual(run.passes.column("wall_ns").to_pylist(), [one["wall_ns"] for one in profile["passes"]])
        self.assertEqual(run.bricks.column("exclusive_ns").to_pylist(), [one["exclusive_ns"] for one in profile["totals"]])
        self.assertEqual(run.bricks.column("name").to_pylist(), [one["name"] for one in profile["totals"]])
        self.assertEqual(run.kernels.num_rows, 0)
        column = profile["spans"]["columns"].index("duration_ns")
        self.assertEqual(run.spans.column("duration_ns").to_pylist(), [row[column] for row in profile["spans"]["rows"]])
        # The same columns have the same types, so that tables can be joined.
        for name in ("device", "stream", "pass", "lane", "start_ns"):
            self.assertEqual(run.passes.schema.field(name).type, run.spans.schema.field(name).type, name)
        joined = run.spans.join(run.passes.select(["pass", "wall_ns"]), "pass")
        self.assertEqual(joined.num_rows, run.spans.num_rows)

    def test_a_table_that_is_empty_has_its_columns_and_a_note(self):
        run = brickscope.load(RUN)
        with self.assertWarnsRegex(UserWarning, "no requests of a server"):
            self.assertEqual(run.requests.num_rows, 0)
        self.assertIn("to_first_token_ns", run.requests.column_names)

    def test_every_column_of_csv_has_a_type_that_is_known(self):
        from brickscope import run as tables
        known = tables._WORDS + tables._FLAGS + tables._SMALL + tables._LARGE + tables._REALS
        run = brickscope.load(RUN)
        for table in (run.passes, run.bricks):
            self.assertLessEqual(set(table.column_names), set(known))

    def test_names_and_numbers_are_exact(self):
        profile = self.profile()
        names = ['=1+1', "'quoted'", 'a,"b"', "two\nlines", "@", "注意"]
        for total, name in zip(profile["totals"], names):
            total["name"] = name
        profile["totals"][0]["exclusive_ns"] = (1 << 53) + 1
        folder = self.save(profile)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = brickscope.load(folder)
        self.assertEqual(run.bricks.column("name").to_pylist()[:6], names)
        self.assertEqual(run.bricks.column("exclusive_ns").to_pylist()[0], (1 << 53) + 1)
        # Nobody stated its work.
        self.assertIsNone(run.bricks.column("flops").to_pylist()[0])

    def test_the_newest_run_is_that_of_loading(self):
        self.save(self.profile())
        run = brickscope.load()
        later = self.profile()
        later["created"] = "2031-01-01T00:00:00Z"
        self.save(later, "b")
        os.chdir("/")
        self.assertEqual(run.path, str(self.folder / "brickscope-runs/a"))
        self.assertEqual(run.summary["created"], self.profile()["created"])

    def test_the_rest_is_what_commands_say(self):
        run = brickscope.load(RUN)
        self.assertEqual(run.summary["model"]["name"], "TinyForCausalLM")
        self.assertNotIn("spans", run.summary)
        self.assertIn("LmHead", str(run))
        self.assertTrue(run.findings["has_looked"])
        self.assertIn("<html", run.report().html)

    def test_what_is_no_run_is_refused_at_once(self):
        with self.assertRaisesRegex(brickscope.CommandError, "nope"):
            brickscope.load("nope")

    @unittest.skipUnless(has("pandas"), "pandas isn't installed")
    def test_frames_of_pandas_keep_integers(self):
        run = brickscope.load(RUN, frames="pandas")
        self.assertEqual(str(run.spans["layer"].dtype), "UInt32")
        self.assertEqual(int(run.passes["wall_ns"].sum()), sum(one["wall_ns"] for one in self.profile()["passes"]))
        self.assertTrue(run.bricks["flops"].isna().all())
        starts = run.passes["start_ns"]
        self.assertEqual((str(starts.dtype), int((starts - starts.max()).min())), ("Int64", int(starts.min() - starts.max())))
        self.assertEqual(str(run.passes["is_left_out"].dtype), "boolean")

    def test_what_was_recorded_is_loaded(self):
        clock = modules.Clock()
        tiny = modules.model(clock)
        with brickscope.record(tiny, clock=clock) as recorder:
            tiny(modules.Ids(1))
        self.assertEqual(recorder.passes, 1)
        self.assertEqual(brickscope.load(recorder.path).passes.column("tokens").to_pylist(), [1])
        # A second one in the same second has a folder of its own.
        self.assertNotEqual(brickscope.record(tiny).path, recorder.path)


@unittest.skipUnless(has("IPython"), "IPython isn't installed")
class InANotebook(Place):
    def setUp(self):
        super().setUp()
        os.environ["BRICKSCOPE"] = self.program("fake")
        os.environ["CALLS"] = str(self.folder / "calls")
        os.environ["IPYTHONDIR"] = str(self.folder / "ipython")
        from IPython.core.interactiveshell import InteractiveShell
        from IPython.utils.capture import capture_output
        from traitlets.config import Config
        self.capture = capture_output
        settings = Config()
        settings.HistoryManager.enabled = False
        InteractiveShell.clear_instance()
        self.shell = InteractiveShell.instance(config=settings)
        self.addCleanup(InteractiveShell.clear_instance)
        fake = types.ModuleType("torch")
        fake.nn = types.SimpleNamespace(Module=modules.Module)
        patch = mock.patch.dict(sys.modules, {"torch": fake})
        patch.start()
        self.addCleanup(patch.stop)
        self.tiny = modules.model(modules.Clock())
        self.shell.user_ns.update(model=self.tiny, Ids=modules.Ids, part=self.tiny.inner["lm_head"], same=self.tiny)
        self.assertTrue(self.shell.run_cell("%load_ext brickscope").success)

    def cell(self, text):
        with self.capture() as seen:
            result = self.shell.run_cell(text)
        return result, seen

    def test_a_cell_is_recorded_and_its_report_shown(self):
        result, seen = self.cell("%%brickscope --out run.json\nmodel(Ids(5))\nmodel(Ids(1))\nafter = 7")
        self.assertTrue(result.success)
        run = json.loads((self.folder / "run.json").read_text())
        self.assertEqual([one["phase"] for one in run["passes"]], ["prefill", "decode"])
        self.assertIn("<iframe", seen.outputs[-1].data["text/html"])
        self.assertIn(str(self.folder / "run.json"), seen.stdout)
        # What the cell made is there, and the model as it was.
        self.assertEqual(self.shell.user_ns["after"], 7)
        self.assertNotIn("forward", self.tiny.__dict__)

    def test_the_model_may_be_named_and_must_be_if_there_are_two(self):
        self.shell.user_ns["other"] = modules.model(modules.Clock())
        result, _ = self.cell("%%brickscope --out run.json\nmodel(Ids(1))")
        self.assertIn("model, other", str(result.error_in_exec))
        result, _ = self.cell("%%brickscope model --out run.json\nmodel(Ids(1))")
        self.assertTrue(result.success)
        result, _ = self.cell("%%brickscope Ids\nmodel(Ids(1))")
        self.assertIn("no torch.nn.Module", str(result.error_in_exec))
        self.shell.user_ns.update(model=0, part=0, same=0, other=0)
        result, _ = self.cell("%%brickscope\nmodel(Ids(1))")
        self.assertIn("make the model in an earlier cell", str(result.error_in_exec))

    def test_a_cell_that_fails_leaves_the_passes_before(self):
        result, seen = self.cell("%%brickscope --out no.json\n1 / 0")
        # Whoever runs all cells stops here.
        self.assertFalse(result.success)
        self.assertIn("no run", seen.stdout)
        self.assertFalse((self.folder / "no.json").exists())
        result, seen = self.cell("%%brickscope --out run.json\nmodel(Ids(1))\n1 / 0")
        self.assertFalse(result.success)
        self.assertNotIn("notebook.py", seen.stdout + seen.stderr)
        self.assertEqual(len(json.loads((self.folder / "run.json").read_text())["passes"]), 1)
        self.assertIn("ZeroDivisionError", seen.stdout + seen.stderr)
        self.assertNotIn("forward", self.tiny.__dict__)

    def test_without_the_command_the_run_is_there_and_the_reason_told(self):
        os.environ["BRICKSCOPE"] = "/nonexistent"
        _, seen = self.cell("%%brickscope --out run.json\nmodel(Ids(1))")
        self.assertIn("no report: BRICKSCOPE names /nonexistent", seen.stdout)
        self.assertTrue((self.folder / "run.json").exists())

    def test_without_pytorch_it_says_what_it_is_for(self):
        with mock.patch.dict(sys.modules):
            del sys.modules["torch"]
            result, _ = self.cell("%%brickscope\n7")
        self.assertIn("none is imported", str(result.error_in_exec))

    def test_a_cell_without_a_pass_says_so(self):
        _, seen = self.cell("%%brickscope --out run.json\n7")
        self.assertIn("no pass was recorded", seen.stdout)


if __name__ == "__main__":
    unittest.main()
