"""The CPU backend of llama.cpp as `figures` builds it, with one of its files changed: one step is slower in it.

Only that file is compiled again, by the command of the first build, and the library linked. So the two differ in nothing else.
"""

import os
import pathlib
import re
import shlex
import subprocess

# What is put into a file of C. Of a node that is planted, each thread waits for a part of the time that it took, by its own
# clock. The first thread notes both times, of each weight, and at the end it tells how many nodes there were, and both means.
PLANT = r"""
#include <strings.h>

static const char * planted_what = @WHAT@;
static double       planted_part = @PART@;
static const char * planted_told = NULL;

enum { PLANTED_ROWS = 64, PLANTED_MOST = 8192 };
static struct { char name[64]; int nodes; long long own_ns[PLANTED_MOST], more_ns[PLANTED_MOST]; } planted_rows[PLANTED_ROWS];
static int planted_n = 0;

__attribute__((constructor)) static void planted_read(void) {
    const char * part = getenv("PLANTED_PART");
    if (getenv("PLANTED")) {
        planted_what = getenv("PLANTED");
        planted_part = part ? atof(part) : 0;
        planted_told = getenv("PLANTED_TOLD");
    }
}

static int planted_compare(const void * a, const void * b) {
    const long long x = *(const long long *) a, y = *(const long long *) b;
    return (x > y) - (x < y);
}

// The mean of the middle half, which a node that was interrupted doesn't move.
static double planted_middle(long long * ns, int n) {
    qsort(ns, n, sizeof(*ns), planted_compare);
    double sum = 0;
    for (int i = n / 4; i < n - n / 4; i++) {
        sum += ns[i];
    }
    return sum / (n - n / 4 - n / 4);
}

__attribute__((destructor)) static void planted_tell(void) {
    FILE * file = planted_told ? fopen(planted_told, "a") : NULL;
    for (int i = 0; file && i < planted_n; i++) {
        const int n = planted_rows[i].nodes;
        const double own = planted_middle(planted_rows[i].own_ns, n), more = planted_middle(planted_rows[i].more_ns, n);
        fprintf(file, "%s %d %.0f %.0f\n", planted_rows[i].name, n, own, more);
    }
    if (file) {
        fclose(file);
    }
}

static long long planted_now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

// blk.3.ffn_down.weight is ffn_down.
static void planted_weight(const struct ggml_tensor * node, char * name, size_t size) {
    const char * from = node->src[0] ? node->src[0]->name : "";
    if (strncmp(from, "blk.", 4) == 0) {
        from += 4 + strspn(from + 4, "0123456789");
        from += *from == '.';
    }
    snprintf(name, size, "%.*s", (int) strcspn(from, ". "), from);
}

// When a node begins, or 0 if it isn't planted.
static long long planted_begin(const struct ggml_tensor * node) {
    if (!planted_what) {
        return 0;
    }
    char name[64];
    planted_weight(node, name, sizeof(name));
    const bool is_op = strcasecmp(ggml_op_name(node->op), planted_what) == 0;
    return is_op || strcmp(name, planted_what) == 0 ? planted_now() : 0;
}

static void planted_end(long long from, const struct ggml_tensor * node, int thread) {
    if (from == 0) {
        return;
    }
    const long long own = planted_now() - from;
    const long long until = from + own + (long long) (own * planted_part);
    long long at = planted_now();
    while (at < until) {
        at = planted_now();
    }
    if (thread != 0 || !planted_told) {
        return;
    }
    char name[64];
    planted_weight(node, name, sizeof(name));
    int row = 0;
    while (row < planted_n && strcmp(planted_rows[row].name, name) != 0) {
        row++;
    }
    if (row == planted_n) {
        if (planted_n == PLANTED_ROWS) {
            return;
        }
        planted_n++;
        snprintf(planted_rows[row].name, sizeof(planted_rows[row].name), "%s", name);
    }
    const int nth = planted_rows[row].nodes;
    if (nth < PLANTED_MOST) {
        planted_rows[row].own_ns[nth] = own;
        planted_rows[row].more_ns[nth] = at - from - own;
        planted_rows[row].nodes++;
    }
}

"""
# The same for a function of C++, whose first statement it is.
STEP = """
#include <chrono>

struct planted_step {
    double times;
    std::chrono::steady_clock::time_point from = std::chrono::steady_clock::now();
    ~planted_step() {
        const auto own = std::chrono::steady_clock::now() - from;
        while (std::chrono::steady_clock::now() - from < own * times) {
        }
    }
};

"""
LOOP = "static thread_ret_t ggml_graph_compute_thread(void * data) {"
BEGIN = "        const int n_fused = ggml_cpu_try_fuse_ops("
END = "        if (state->ith == 0 && cplan->abort_callback &&\n"


def put(text, before, what):
    """Puts something before a place of a file, which must be there once."""
    if text.count(before) != 1:
        raise SystemExit(f"llama.cpp's sources have {text.count(before)} of {before.strip()!r}, where something is planted")
    return text.replace(before, what + before)


def nodes(text, what=None, part=0.0):
    """ggml-cpu.c, in which nodes are slower: those of an operation (`mul_mat`), or of a weight (`ffn_down`). Without either, as
    the environment says: PLANTED, PLANTED_PART and PLANTED_TOLD."""
    quoted = "NULL" if what is None else f'"{what}"'
    text = put(text, LOOP, PLANT.replace("@WHAT@", quoted).replace("@PART@", repr(float(part))))
    text = put(text, BEGIN, "        const long long planted_from = planted_begin(node);\n")
    return put(text, END, "        planted_end(planted_from, node, state->ith);\n")


def function(text, head, times):
    """A file of C++, of which one function takes so many times as long."""
    text = put(text, head, STEP)
    return text.replace(head, f"{head}\n    const planted_step planted{{{times}}};")


class Backend:
    """How the library of the CPU backend was built: each file's command, and the link."""

    def __init__(self, figures):
        self.build = figures.FOLDER / "build"
        self.sources = figures.PACKAGE / "vendor/llama.cpp/ggml/src/ggml-cpu"
        self.ninja = figures.FOLDER / "venv/bin/ninja"
        line = [self.ninja, "-C", self.build, "-t", "commands", "ggml-cpu"]
        told = subprocess.run(line, check=True, capture_output=True, text=True).stdout
        lines = [re.sub(r"^: && | && :$", "", line) for line in told.splitlines()]
        self.lines = [shlex.split(line) for line in lines if " -o " in line]

    def text(self, file):
        return (self.sources / file).read_text()

    def _one(self, what, is_it):
        found = [line for line in self.lines if is_it(line)]
        if len(found) != 1:
            raise SystemExit(f"of the commands that build the CPU backend, {len(found)} make {what}")
        return found[0]

    def _compile(self, file):
        return self._one(file, lambda line: "-c" in line and line[-1].endswith(f"/src/ggml-cpu/{file}"))

    def _link(self):
        return self._one("the library", lambda line: "-shared" in line and any("ggml-cpu.c.o" in word for word in line))

    def compiled(self, file, source, out):
        """The command that compiles a file of the backend from elsewhere. It runs anywhere."""
        words = iter(self._compile(file))
        line = []
        for word in words:
            if word in ("-MT", "-MF", "-o", "-c"):
                next(words)
            elif word != "-MD":
                line.append(word)
        # Headers beside the file are looked for there.
        return [*line, "-w", "-I", str((self.sources / file).parent), "-o", str(out), "-c", str(source)]

    def linked(self, objects, out):
        """The command that links the library from these objects, each a file's, and the others of the build."""
        own = {}
        for file, made in objects.items():
            line = self._compile(file)
            own[line[line.index("-o") + 1]] = str(made)
        line, words = [], iter(self._link())
        for word in words:
            if word == "-o":
                next(words)
                line += ["-o", str(out)]
            elif word in own:
                line.append(own.pop(word))
            elif not word.startswith("-") and (self.build / word).exists():
                line.append(str(self.build / word))
            else:
                line.append(word)
        if own:
            raise SystemExit(f"the library isn't linked from {', '.join(own)}")
        return line

    @property
    def name(self):
        """The name by which the library is loaded."""
        return next(word.rpartition(",")[2] for word in self._link() if word.startswith("-Wl,-soname,"))

    def made(self, folder):
        """The folder of a library whose nodes are as slow as the environment says."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        source, object_ = folder / "ggml-cpu.c", folder / "ggml-cpu.o"
        source.write_text(nodes(self.text("ggml-cpu.c")))
        for line in (
            self.compiled("ggml-cpu.c", source, object_),
            self.linked({"ggml-cpu.c": object_}, folder / self.name),
        ):
            subprocess.run(line, check=True, cwd=self.build)
        return folder

    def check(self, program, folder):
        """Fails if a program doesn't load the library of a folder where LD_LIBRARY_PATH says so."""
        environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
        told = subprocess.run(["ldd", program], capture_output=True, text=True, check=True, env=environment).stdout
        if f"{folder}/{self.name} " not in told:
            raise SystemExit(f"{program} doesn't load {folder}/{self.name}:\n{told}")
