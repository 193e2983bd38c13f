// Decodes with each llama.cpp that it is given, in turns, however that is packaged, and prints what each copy of ggml was
// asked to compute: packages HOW FILE [FILE], where HOW is how they are loaded, and `linked` as a FILE is what it is linked
// with.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct batch { int32_t n_tokens; const int32_t *token; const float *embd; const int32_t *pos, *n_seq_id; const int32_t *const *seq_id; const int8_t *logits; };
#ifdef LINKED
int llama_decode(void *context, struct batch batch);
int32_t llama_sampler_sample(void *sampler, void *context, int32_t index);
void llama_sampler_apply(void *sampler, void *candidates);
void *llama_sampler_init_grammar(const void *vocab, const char *text, const char *root);
int32_t llama_token_to_piece(const void *vocab, int32_t token, char *text, int32_t room, int32_t strip, bool special);
long ggml_asked(void);
#endif

int main(int argc, char **argv) {
    int (*decode[2])(void *, struct batch) = {0};
    long (*asked[2])(void) = {0};
    static int contexts[2];
    const char *how = argc > 1 ? argv[1] : "";
    int flags = strstr(how, "lazy") ? RTLD_LAZY : RTLD_NOW;
    flags |= strstr(how, "global") ? RTLD_GLOBAL : RTLD_LOCAL;
    flags |= strstr(how, "deep") ? RTLD_DEEPBIND : 0;
    int n = argc > 3 ? 2 : 1;
    // As ggml looks for the backend that suits the processor: all but the last are asked something, and unloaded.
    for (; strstr(how, "last") && argc > 3; argv++, argc--) {
        void *of = dlopen(argv[2], flags);
        if (of == NULL || dlsym(of, "ggml_asked") == NULL) return 9;
        dlclose(of);
        n = 1;
    }
    for (int i = 0; i < n; i++) {
#ifdef LINKED
        if (!strcmp(argv[2 + i], "linked")) {
            decode[i] = llama_decode;
            asked[i] = ggml_asked;
            continue;
        }
#endif
        void *of = strstr(how, "namespace") ? dlmopen(LM_ID_NEWLM, argv[2 + i], RTLD_NOW) : dlopen(argv[2 + i], flags);
        if (of == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 9;
        }
        decode[i] = (int (*)(void *, struct batch))dlsym(of, "llama_decode");
        asked[i] = (long (*)(void))dlsym(of, "ggml_asked");
    }
    for (int pass = 0; pass < 6; pass++) {
        for (int i = 0; i < n; i++) decode[i](&contexts[i], (struct batch){pass < 2 ? 6 : 1});
#ifdef LINKED
        if (strstr(how, "samples")) {
            char text[16];
            static void *nameless[1], *grammar;
            if (grammar == NULL) grammar = llama_sampler_init_grammar(NULL, "root ::= 7", "root");
            llama_sampler_apply(nameless, NULL);
            int32_t token = llama_sampler_sample(grammar, &contexts[0], pass);
            llama_token_to_piece(NULL, token, text, sizeof text, 0, false);
            puts(text);
        }
#endif
    }
    for (int i = 0; i < n; i++) printf("copy %d: %ld\n", i, asked[i]());
    // Not 0, which any program may end with.
    return 5;
}
