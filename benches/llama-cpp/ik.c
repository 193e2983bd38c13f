// ik_llama.cpp as a server of forward passes for this bench. It is a program of its own, since its symbols are those of
// llama.cpp. It reads commands from standard input, as 32-bit integers of this machine, and answers each with an integer on
// standard output:
//
//   N, then N tokens   runs these tokens after those so far: 0, or else what `llama_decode` returned
//   0                  forgets all tokens: 0
//   -1                 the logits that follow the last token: their number, then as many floats
//
// Usage: ik MODEL THREADS ROOM REPACK, where REPACK is 1 for what `-rtr 1` does, else 0. Its first answer is the number of
// letters that follow: what the library was built with.
#include <llama.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void silent(enum ggml_log_level level, const char *text, void *unused) {
    (void)unused;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static FILE *answers;

static int get(void *into, size_t each, size_t n) { return fread(into, each, n, stdin) == n; }

static void say(int32_t answer) {
    fwrite(&answer, sizeof answer, 1, answers);
    fflush(answers);
}

int main(int argc, char **argv) {
    if (argc != 5) return fputs("usage: ik MODEL THREADS ROOM REPACK\n", stderr), 2;
    uint32_t threads = (uint32_t)atoi(argv[2]), room = (uint32_t)atoi(argv[3]);
    // The library itself prints, to standard output.
    answers = fdopen(dup(1), "wb");
    if (!answers || dup2(2, 1) < 0) return 1;
    llama_log_set(silent, NULL);
    llama_backend_init();
    struct llama_model_params of_model = llama_model_default_params();
    of_model.n_gpu_layers = 0;
    of_model.repack_tensors = argv[4][0] == '1';
    // Repacked weights are written, which those of a mapped file can't be.
    of_model.use_mmap = !of_model.repack_tensors;
    struct llama_model *model = llama_model_load_from_file(argv[1], of_model);
    if (!model) return 1;
    struct llama_context_params of_context = llama_context_default_params();
    of_context.n_ctx = room;
    if (of_context.n_batch < room) of_context.n_batch = room;
    of_context.n_threads = of_context.n_threads_batch = threads;
    struct llama_context *context = llama_init_from_model(model, of_context);
    llama_token *tokens = malloc(room * sizeof *tokens);
    if (!context || !tokens) return 1;
    const char *built_with = llama_print_system_info();
    say((int32_t)strlen(built_with));
    fwrite(built_with, 1, strlen(built_with), answers);
    fflush(answers);
    int32_t n, so_far = 0;
    while (get(&n, sizeof n, 1)) {
        if (n == 0) {
            llama_kv_cache_clear(context);
            so_far = 0;
            say(0);
        } else if (n == -1) {
            float *logits = llama_get_logits_ith(context, -1);
            int32_t vocabulary = logits ? llama_n_vocab(model) : 0;
            say(vocabulary);
            fwrite(logits, sizeof *logits, (size_t)vocabulary, answers);
            fflush(answers);
        } else {
            if (n < 0 || n > (int32_t)room - so_far || !get(tokens, sizeof *tokens, (size_t)n)) return 1;
            say(llama_decode(context, llama_batch_get_one(tokens, n, so_far, 0)));
            so_far += n;
        }
    }
    return 0;
}
