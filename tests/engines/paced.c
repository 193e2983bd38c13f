// What llama-bench does, for any build of llama.cpp in shared libraries: paced LLAMA GGML FOLDER MODEL THREADS PROMPT TOKENS
// ROUNDS computes a prompt and then tokens, and prints how long each pass took, in nanoseconds, as JSON.
//
// Structs differ between versions. A function that returns a large one writes it where its caller says, and one that takes it
// reads it on the stack: so a struct that is larger than any version's stands for all. Only its first field is set, which is
// the size of the context in all of them.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct large { uint64_t words[128]; };

static void *function(void *library, const char *name) {
    void *at = dlsym(library, name);
    if (!at) {
        fprintf(stderr, "paced: %s\n", dlerror());
        exit(2);
    }
    return at;
}

static void *loaded(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "paced: %s\n", dlerror());
        exit(2);
    }
    return library;
}

static int64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void quiet(int level, const char *text, void *data) {
    (void)level, (void)text, (void)data;
}

static void *context;
static int32_t (*decode)(void *, struct large);
static void (*synchronize)(void *);
static struct large (*batch)(int32_t *, int32_t);

static int64_t pass(int32_t n) {
    int32_t tokens[512];
    for (int i = 0; i < n; i++) tokens[i] = 3 + (i * 37 + n) % 200;
    int64_t from = now();
    int failed = decode(context, batch(tokens, n));
    synchronize(context);
    int64_t took = now() - from;
    if (failed) {
        fprintf(stderr, "paced: llama_decode: %d\n", failed);
        exit(2);
    }
    return took;
}

static void passes(const char *name, int count, int32_t tokens, const char *end) {
    printf("\"%s\": [", name);
    for (int i = 0; i < count; i++) printf("%s%lld", i ? ", " : "", (long long)pass(tokens));
    printf("]%s", end);
}

int main(int argc, char **argv) {
    if (argc != 9) {
        fprintf(stderr, "paced LLAMA GGML FOLDER MODEL THREADS PROMPT TOKENS ROUNDS\n");
        return 2;
    }
    int threads = atoi(argv[5]), prompt = atoi(argv[6]), answer = atoi(argv[7]), rounds = atoi(argv[8]);
    if (threads < 1 || prompt < 2 || prompt > 512 || answer < 1 || prompt + answer > 2000 || rounds < 1) {
        fprintf(stderr, "paced: a number is out of range\n");
        return 2;
    }
    void *ggml = loaded(argv[2]), *llama = loaded(argv[1]);
    ((void (*)(void (*)(int, const char *, void *), void *))function(llama, "llama_log_set"))(quiet, NULL);
    ((void (*)(const char *))function(ggml, "ggml_backend_load_all_from_path"))(argv[3]);
    ((void (*)(void))function(llama, "llama_backend_init"))();
    struct large of_model = ((struct large (*)(void))function(llama, "llama_model_default_params"))();
    void *model = ((void *(*)(const char *, struct large))function(llama, "llama_model_load_from_file"))(argv[4], of_model);
    if (!model) {
        fprintf(stderr, "paced: the model %s can't be loaded\n", argv[4]);
        return 2;
    }
    struct large of_context = ((struct large (*)(void))function(llama, "llama_context_default_params"))();
    uint32_t size = 2048;
    memcpy(&of_context, &size, sizeof size);
    context = ((void *(*)(void *, struct large))function(llama, "llama_init_from_model"))(model, of_context);
    if (!context) {
        fprintf(stderr, "paced: there is no context\n");
        return 2;
    }
    ((void (*)(void *, int32_t, int32_t))function(llama, "llama_set_n_threads"))(context, threads, threads);
    decode = (int32_t(*)(void *, struct large))function(llama, "llama_decode");
    synchronize = (void (*)(void *))function(llama, "llama_synchronize");
    batch = (struct large(*)(int32_t *, int32_t))function(llama, "llama_batch_get_one");
    void *(*memory)(void *) = (void *(*)(void *))function(llama, "llama_get_memory");
    void (*clear)(void *, _Bool) = (void (*)(void *, _Bool))function(llama, "llama_memory_clear");
    // As llama-bench does, before it measures.
    pass(prompt);
    pass(1);
    for (int round = 0; round < rounds; round++) {
        clear(memory(context), 1);
        printf("{");
        passes("prefill", 1, prompt, ", ");
        passes("decode", answer, 1, "}\n");
    }
    // Some versions crash where a context is freed at the end of a program that others still have libraries in.
    fflush(stdout);
    ((void (*)(void *))function(llama, "llama_free"))(context);
    ((void (*)(void *))function(llama, "llama_model_free"))(model);
    return 0;
}
