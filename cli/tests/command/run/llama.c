// What `brickscope run` needs of ggml and llama.cpp, without their computations: two layers of a few nodes, each of which
// waits for a known time. Compiled three times, as libggml-base.so, libggml-cpu.so and libllama.so, and as a program
// that has all of it.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { F32 = 0, Q8_0 = 8, I32 = 26 };
enum { NONE = 0, DUP = 1, ADD = 2, GET_ROWS = 3, RMS_NORM = 4, MUL = 5, MUL_MAT = 6, MUL_MAT_ID = 7, ROPE = 8, VIEW = 9, FLASH_ATTN_EXT = 10 };

struct tensor {
    int32_t type;
    void *buffer;
    int64_t ne[4];
    size_t nb[4];
#ifdef OTHER_LAYOUT
    int64_t more;
#endif
    int32_t op;
    int32_t op_params[16];
    int32_t flags;
    struct tensor *src[10];
    struct tensor *view_src;
    size_t view_offs;
    void *data;
    char name[64];
    void *extra;
    // How long it takes, in microseconds.
    int64_t takes;
    // The index of the backend that computes it.
    int on;
};

struct params { int ith, nth; };
struct plan { size_t work_size; void *work_data; int n_threads; };
struct graph { int n; struct tensor *nodes[64]; };
struct batch { int32_t n_tokens; const int32_t *token; const float *embd; const int32_t *pos, *n_seq_id; const int32_t *const *seq_id; const int8_t *logits; };
// A GPU's computes what it is told to while the caller goes on. What it is told at once takes it half the time.
struct backend { const char *name; bool is_cpu; };
typedef bool (*callback)(struct tensor *t, bool ask, void *data);
struct sched {
    struct backend *backends[2];
    int n, splits;
    callback call;
    void *data;
    int (*cpu)(struct graph *g, const struct plan *plan);
    struct graph *g;
};

const char *ggml_get_name(const struct tensor *t);
int64_t ggml_nelements(const struct tensor *t);
size_t ggml_nbytes(const struct tensor *t);
const char *ggml_op_desc(const struct tensor *t);
const char *ggml_type_name(int32_t type);
bool ggml_backend_buffer_is_host(const void *buffer);
bool ggml_cpu_extra_compute_forward(const struct params *p, struct tensor *t);
void ggml_compute_forward_rms_norm_mul_fused(const struct params *p, struct tensor *norm, struct tensor *mul);
void ggml_barrier(void *pool);
int ggml_graph_compute(struct graph *g, const struct plan *plan);
int ggml_graph_n_nodes(struct graph *g);
struct tensor *ggml_graph_node(struct graph *g, int i);
const char *ggml_backend_name(struct backend *backend);
void ggml_backend_tensor_get(const struct tensor *t, void *to, size_t from, size_t size);
int ggml_backend_sched_get_n_backends(struct sched *s);
struct backend *ggml_backend_sched_get_backend(struct sched *s, int i);
int ggml_backend_sched_get_n_splits(struct sched *s);
struct backend *ggml_backend_sched_get_tensor_backend(struct sched *s, struct tensor *t);
void ggml_backend_sched_set_eval_callback(struct sched *s, callback call, void *data);
void ggml_backend_sched_synchronize(struct sched *s);
int ggml_backend_sched_graph_compute_async(struct sched *s, struct graph *g);
bool ggml_backend_sched_alloc_graph(struct sched *s, struct graph *g);
int _ZN13llama_context6decodeERK11llama_batch(void *context, const struct batch *batch);
int llama_decode(void *context, struct batch batch);
void *llama_get_memory(const void *context);
int32_t llama_memory_seq_pos_max(void *memory, int32_t sequence);

#ifdef BASE
const char *ggml_get_name(const struct tensor *t) { return t->name; }
int64_t ggml_nelements(const struct tensor *t) { return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]; }
size_t ggml_nbytes(const struct tensor *t) { return t->type == Q8_0 ? ggml_nelements(t) / 32 * 34 : ggml_nelements(t) * 4; }
const char *ggml_op_desc(const struct tensor *t) {
    static const char *names[] = {"NONE", "DUP", "ADD", "GET_ROWS", "RMS_NORM", "MUL", "MUL_MAT", "MUL_MAT_ID", "ROPE", "VIEW", "FLASH_ATTN_EXT"};
    return names[t->op];
}
const char *ggml_type_name(int32_t type) { return type == Q8_0 ? "q8_0" : type == I32 ? "i32" : "f32"; }
#ifndef OLD
bool ggml_backend_buffer_is_host(const void *buffer) { return *(const bool *)buffer; }
#endif
int ggml_graph_n_nodes(struct graph *g) { return g->n; }
struct tensor *ggml_graph_node(struct graph *g, int i) { return g->nodes[i < 0 ? g->n + i : i]; }
const char *ggml_backend_name(struct backend *backend) { return backend->name; }

static int64_t busy_until;
static int64_t now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}
static void finish(void) {
    while (now() < busy_until) {}
}
// As ggml's backend for other machines: it is only waited for until it knows what to do.
static bool is_remote(struct backend *backend) { return strncmp(backend->name, "RPC", 3) == 0; }
static void synchronize(struct backend *backend) {
    if (!backend->is_cpu && !is_remote(backend)) finish();
}
void ggml_backend_tensor_get(const struct tensor *t, void *to, size_t from, size_t size) {
    if (from + size > ggml_nbytes(t)) abort();
    finish();
    memset(to, 0, size);
}
int ggml_backend_sched_get_n_backends(struct sched *s) { return s->n; }
struct backend *ggml_backend_sched_get_backend(struct sched *s, int i) { return s->backends[i]; }
#ifndef OLD
int ggml_backend_sched_get_n_splits(struct sched *s) { return s->splits; }
#endif
struct backend *ggml_backend_sched_get_tensor_backend(struct sched *s, struct tensor *t) { return s->backends[t->on]; }
void ggml_backend_sched_set_eval_callback(struct sched *s, callback call, void *data) {
    s->call = call;
    s->data = data;
}
void ggml_backend_sched_synchronize(struct sched *s) {
    for (int i = 0; i < s->n; i++) synchronize(s->backends[i]);
}
static void compute_on(struct sched *s, struct backend *backend, struct tensor **nodes, int n) {
    struct graph part = {n, {0}};
    struct plan plan = {0, NULL, 2};
    int64_t takes = 0;
    for (int i = 0; i < n; i++) {
        part.nodes[i] = nodes[i];
        takes += nodes[i]->takes * (n > 1 ? 500 : 1000);
    }
    if (backend->is_cpu) {
        s->cpu(&part, &plan);
    } else {
        int64_t from = now();
        busy_until = (busy_until > from ? busy_until : from) + takes;
    }
}
bool ggml_backend_sched_alloc_graph(struct sched *s, struct graph *g) {
    (void)s;
    int64_t until = now() + 70000;
    while (now() < until) {}
    return g->n > 0;
}
struct asked { struct sched *s; struct tensor *t; };
static void *ask_elsewhere(void *of) {
    struct asked *asked = of;
    // Whatever it answers, there it isn't asked for.
    asked->s->call(asked->t, true, asked->s->data);
    asked->s->call(asked->t, false, asked->s->data);
    return NULL;
}
int ggml_backend_sched_graph_compute_async(struct sched *s, struct graph *g) {
    for (int from = 0, to; from < g->n; from = to) {
        for (to = from; to < g->n && g->nodes[to]->on == g->nodes[from]->on; to++) {}
        struct backend *backend = s->backends[g->nodes[from]->on];
        if (s->call == NULL) {
            compute_on(s, backend, g->nodes + from, to - from);
            continue;
        }
        if (getenv("OTHER_THREAD")) {
            struct asked asked = {s, g->nodes[from]};
            pthread_t other;
            pthread_create(&other, NULL, ask_elsewhere, &asked);
            pthread_join(other, NULL);
        }
        for (int j0 = from, j1; j0 < to; j0 = j1 + 1) {
            j1 = j0;
            bool need = s->call(g->nodes[j0], true, s->data);
            while (!need && j1 < to - 1) need = s->call(g->nodes[++j1], true, s->data);
            compute_on(s, backend, g->nodes + j0, j1 - j0 + 1);
            synchronize(backend);
            if (need && !s->call(g->nodes[j1], false, s->data)) break;
        }
    }
    return 0;
}
#endif

#ifdef CPU
static void spin(int64_t microseconds) {
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do {
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - from.tv_sec) * 1000000000 + now.tv_nsec - from.tv_nsec < microseconds * 1000);
}
// A node of the name SLOW takes TIMES times as long.
static int64_t takes(const struct tensor *t) {
    const char *slow = getenv("SLOW");
    return slow && !strcmp(t->name, slow) ? t->takes * atoi(getenv("TIMES")) : t->takes;
}
// What this copy of ggml was asked to compute.
static atomic_long asked;
long ggml_asked(void) { return atomic_load(&asked); }
bool ggml_cpu_extra_compute_forward(const struct params *p, struct tensor *t) {
    (void)p; (void)t;
    atomic_fetch_add(&asked, 1);
    return false;
}
void ggml_compute_forward_rms_norm_mul_fused(const struct params *p, struct tensor *norm, struct tensor *mul) {
    (void)p; (void)mul;
    spin(norm->takes);
}
// Two threads, of which the second has half of the first one's work.
struct pool { atomic_int arrived, round; struct graph *g; };
void ggml_barrier(void *of) {
    struct pool *pool = of;
    int round = atomic_load(&pool->round);
    if (atomic_fetch_add(&pool->arrived, 1) == 1) {
        atomic_store(&pool->arrived, 0);
        atomic_fetch_add(&pool->round, 1);
    } else {
        while (atomic_load(&pool->round) == round) sched_yield();
    }
}
static void compute(struct pool *pool, int ith) {
    struct params p = {ith, 2};
    for (int i = 0; i < pool->g->n; i++) {
        struct tensor *t = pool->g->nodes[i];
        ggml_cpu_extra_compute_forward(&p, t);
        // A barrier inside, as products have one.
        if (t->op == MUL_MAT) ggml_barrier(pool);
        spin(ith == 0 ? t->takes : t->takes / 2);
        if (i + 1 < pool->g->n) ggml_barrier(pool);
    }
    ggml_barrier(pool);
}
static void *second(void *pool) {
    compute(pool, 1);
    return NULL;
}
int ggml_graph_compute(struct graph *g, const struct plan *plan) {
    atomic_fetch_add(&asked, 1000000);
    if (getenv("THREADS")) {
        struct pool pool = {0, 0, g};
        pthread_t other;
        pthread_create(&other, NULL, second, &pool);
        compute(&pool, 0);
        pthread_join(other, NULL);
        return 0;
    }
    // ggml's assertions name its files.
    if (plan->n_threads < 1) {
        fprintf(stderr, "ggml/src/ggml-cpu/ggml-cpu.c: no threads\n");
        abort();
    }
    struct params p = {0, plan->n_threads}, other = {1, plan->n_threads};
    for (int i = 0; i < g->n; i++) {
        struct tensor *t = g->nodes[i];
        if (t->op == RMS_NORM && i + 1 < g->n && g->nodes[i + 1]->op == MUL) {
            ggml_compute_forward_rms_norm_mul_fused(&p, t, g->nodes[++i]);
            continue;
        }
        ggml_cpu_extra_compute_forward(&p, t);
        // As another thread would.
        ggml_cpu_extra_compute_forward(&other, t);
        spin(takes(t));
    }
    return 0;
}
#endif

#ifdef LLAMA
static struct tensor pool[256];
static int used;
// A context is its model's number.
static struct model { const char *name; uint64_t parameters; } models[] = {{"target", 7000}, {"draft", 100}};
static int cached[2];
static int number(const void *context) { return *(const int *)context; }

static struct tensor *make(const char *name, int type, int op, int64_t a, int64_t b, int64_t takes, struct tensor *x, struct tensor *y) {
    struct tensor *t = &pool[used++];
    memset(t, 0, sizeof *t);
    t->type = type;
    t->op = op;
    t->ne[0] = a;
    t->ne[1] = b;
    t->ne[2] = t->ne[3] = 1;
    t->src[0] = x;
    t->src[1] = y;
    t->takes = getenv("QUICK") ? takes / 10 : takes;
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}
static int weights;
static struct tensor *weight(const char *name, int64_t rows, int64_t columns) {
    // As whisper.cpp's, which have no names: byte i of the nth is 7n + i.
    static unsigned char numbers[32][1 << 15];
    if (getenv("UNNAMED")) {
        struct tensor *t = make("leaf_1", Q8_0, NONE, columns, rows, 0, NULL, NULL);
        for (int i = 0; i < 1 << 15; i++) numbers[weights][i] = 7 * weights + i;
        t->data = numbers[weights++];
        return t;
    }
    return make(name, Q8_0, NONE, columns, rows, 0, NULL, NULL);
}
// Each token chooses two of eight experts: in the first layer number 5 and one of the first three in turn, in the second
// always 0 and 7. Three products use a choice.
static void mix(struct graph *g, int64_t tokens, int layer, struct tensor *x) {
    static int32_t chosen[2][128];
    static int nth;
    static bool here = true, elsewhere = false;
    char name[64];
    const char *how = getenv("EXPERTS");
    for (int t = 0; t < tokens; t++) {
        chosen[layer][2 * t] = layer ? 0 : (nth + t) % 3;
        chosen[layer][2 * t + 1] = layer ? 7 : 5;
    }
    nth += layer;
    // Numbers of no expert.
    if (layer && !strcmp(how, "odd")) {
        chosen[1][1] = 99;
        if (tokens > 1) chosen[1][3] = -1;
    }
    snprintf(name, sizeof name, "ffn_moe_topk-%d", layer);
    struct tensor *ids = make(name, I32, NONE, 2, tokens, 0, NULL, NULL);
    ids->nb[0] = 4;
    ids->nb[1] = 8;
    ids->data = chosen[layer];
    ids->buffer = strcmp(how, "elsewhere") ? &here : &elsewhere;
    // Nothing is there that could be read.
    if (!strcmp(how, "elsewhere")) ids->data = (void *)16;
    const char *matrices[] = {"up", "gate", "down"};
    for (int m = 0; m < 3; m++) {
        snprintf(name, sizeof name, "blk.%d.ffn_%s_exps.weight", layer, matrices[m]);
        struct tensor *w = weight(name, 32, 64);
        w->ne[2] = 8;
        snprintf(name, sizeof name, "ffn_moe_%s-%d", matrices[m], layer);
        struct tensor *product = make(name, F32, MUL_MAT_ID, 32, 2, 20, w, x);
        product->ne[2] = tokens;
        product->src[2] = ids;
        g->nodes[g->n++] = product;
    }
}
static void build(struct graph *g, int64_t tokens) {
    char name[64];
    used = 0;
    weights = 0;
    g->n = 0;
    struct tensor *ids = make("inp_tokens", F32, NONE, tokens, 1, 0, NULL, NULL);
    struct tensor *x = make("embd", F32, GET_ROWS, 64, tokens, 50, weight("token_embd.weight", 320, 64), ids);
    g->nodes[g->n++] = x;
    for (int layer = 0; layer < 2; layer++) {
        snprintf(name, sizeof name, "norm-%d", layer);
        struct tensor *norm = make(name, F32, RMS_NORM, 64, tokens, 30, x, NULL);
        snprintf(name, sizeof name, "blk.%d.attn_norm.weight", layer);
        struct tensor *scale = weight(name, 1, 64);
        snprintf(name, sizeof name, "attn_norm-%d", layer);
        struct tensor *mul = make(name, F32, MUL, 64, tokens, 0, norm, scale);
        g->nodes[g->n++] = norm;
        g->nodes[g->n++] = mul;
        const char *matrices[] = {"attn_q", "attn_k", "attn_v"};
        for (int m = 0; m < 3; m++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", layer, matrices[m]);
            struct tensor *w = weight(name, 64, 64);
            snprintf(name, sizeof name, "%s_cur-%d", matrices[m], layer);
            g->nodes[g->n++] = make(name, F32, MUL_MAT, 64, tokens, 40, w, mul);
        }
        struct tensor *view = make("Qcur (view)", F32, VIEW, 64, tokens, 0, g->nodes[g->n - 1], NULL);
        g->nodes[g->n++] = view;
        snprintf(name, sizeof name, "cache_k_l%d (view)", layer);
        struct tensor *cache = make(name, F32, NONE, 64, 256, 0, NULL, NULL);
        struct tensor *attention = make("node_9", F32, FLASH_ATTN_EXT, 64, tokens, 60, mul, cache);
        snprintf(name, sizeof name, "cache_v_l%d (view)", layer);
        attention->src[2] = make(name, F32, NONE, 64, 256, 0, NULL, NULL);
        g->nodes[g->n++] = attention;
        snprintf(name, sizeof name, "blk.%d.ffn_down.weight", layer);
        struct tensor *down = weight(name, 64, 128);
        snprintf(name, sizeof name, "l_out-%d", layer);
        // The second layer's is the slow one.
        x = make(name, F32, MUL_MAT, 64, tokens, layer ? 400 : 100, down, mul);
        g->nodes[g->n++] = x;
        if (getenv("EXPERTS")) mix(g, tokens, layer, x);
    }
    g->nodes[g->n++] = make("result_norm", F32, RMS_NORM, 64, 1, 20, x, NULL);
    g->nodes[g->n++] = make("result_output", F32, MUL_MAT, 320, 1, 200, weight("output.weight", 320, 64), x);
}
void *llama_get_memory(const void *context) { return (void *)context; }
#ifdef SERVES
// How many tokens each sequence has in the cache, and how many of it the next pass has.
int llama_sequences[4], llama_adds[4];
int32_t llama_memory_seq_pos_max(void *memory, int32_t sequence) { (void)memory; return llama_sequences[sequence] - 1; }
uint32_t llama_n_seq_max(const void *context) { (void)context; return 4; }
int32_t llama_tokenize(const void *vocab, const char *text, int32_t len, int32_t *tokens, int32_t most, bool special, bool parse) {
    (void)vocab; (void)len; (void)tokens; (void)special; (void)parse;
    return atoi(text) <= most ? atoi(text) : -atoi(text);
}
#else
int32_t llama_memory_seq_pos_max(void *memory, int32_t sequence) { (void)sequence; return cached[number(memory)] - 1; }
#endif
const void *llama_get_model(const void *context) { return &models[number(context)]; }
uint32_t llama_n_ctx(const void *context) { (void)context; return 4096; }
uint32_t llama_n_ubatch(const void *context) { return number(context) ? 64 : 512; }
uint64_t llama_model_n_params(const struct model *model) { return getenv("PARAMETERS") ? strtoull(getenv("PARAMETERS"), NULL, 10) : model->parameters; }
int32_t llama_model_meta_val_str(const struct model *model, const char *key, char *text, size_t room) {
    return strcmp(key, "general.name") ? -1 : snprintf(text, room, "%s", model->name);
}
// Both take at least a tenth of a millisecond; to sample asks for a text on the way.
static void work(void) {
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do {
        clock_gettime(CLOCK_MONOTONIC, &to);
    } while ((to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec < 100000);
}
int32_t llama_token_to_piece(const void *vocab, int32_t token, char *text, int32_t room, int32_t strip, bool special) {
    (void)vocab; (void)strip;
    work();
    return snprintf(text, room, "%d%d", token, special);
}
// A sampler of a program's own may have no name.
struct sampler { const struct named { const char *(*name)(const struct sampler *); } *interface; };
void llama_sampler_apply(struct sampler *sampler, void *candidates) { (void)sampler; (void)candidates; work(); }
struct sampler *llama_sampler_init_grammar(const void *vocab, const char *text, const char *root) {
    static struct sampler grammar;
    (void)vocab; (void)text; (void)root;
    return &grammar;
}
int32_t llama_sampler_sample(struct sampler *sampler, void *context, int32_t index) {
    char text[16];
    if (sampler != NULL) llama_sampler_apply(sampler, NULL);
    return llama_token_to_piece(context, index, text, sizeof text, 0, true);
}
static int own_calls;
static bool own_callback(struct tensor *t, bool ask, void *data) {
    (void)t;
    (void)ask;
    if (own_calls++ == 0) printf("own callback with %d\n", *(int *)data);
    return true;
}
// The embedding is the CPU's, as in llama.cpp, and a part of the layers may be.
static void compute_with(struct graph *g) {
    static int seven = 7;
    static struct backend gpu, cpu = {"CPU", true};
    static struct sched sched;
    if (sched.n == 0) {
        gpu.name = getenv("GPU");
        sched = (struct sched){{&gpu, &cpu}, 2, 0, NULL, NULL, ggml_graph_compute, NULL};
    }
    // As where a graph is built anew; one that is like the last is computed without.
    if (sched.g == NULL || own_calls > 0) {
        ggml_backend_sched_set_eval_callback(&sched, getenv("OWN_CALLBACK") ? own_callback : NULL, &seven);
    }
    sched.g = g;
    sched.splits = 1;
    int half = getenv("MIXED") ? g->n / 2 : 1;
    for (int i = 0; i < g->n; i++) {
        g->nodes[i]->on = i < half || getenv("ALL_CPU") ? 1 : 0;
        sched.splits += i > 0 && g->nodes[i]->on != g->nodes[i - 1]->on;
    }
    ggml_backend_sched_graph_compute_async(&sched, g);
}
int _ZN13llama_context6decodeERK11llama_batch(void *context, const struct batch *batch) {
    static struct graph graph;
    struct plan plan = {0, NULL, getenv("N_THREADS") ? atoi(getenv("N_THREADS")) : 2};
    if (getenv("GPU")) {
        build(&graph, batch->n_tokens);
        compute_with(&graph);
    } else if (getenv("ON_A_GPU") == NULL) {
        build(&graph, batch->n_tokens);
        if (!ggml_backend_sched_alloc_graph(NULL, &graph)) return 2;
        ggml_graph_compute(&graph, &plan);
    }
    cached[number(context)] += batch->n_tokens;
#ifdef SERVES
    for (int i = 0; i < 4; i++) {
        llama_sequences[i] += llama_adds[i];
        llama_adds[i] = 0;
    }
#endif
    return getenv("FAILS") && batch->n_tokens == 1 ? 1 : 0;
}
#ifdef SERVES
// A batch of newer versions, of which nobody knows what it looks like.
struct ext { int n; };
struct ext *llama_batch_ext_init(void *context) { (void)context; return calloc(1, sizeof(struct ext)); }
void llama_batch_ext_clear(struct ext *ext) { ext->n = 0; }
void llama_batch_ext_free(struct ext *ext) { free(ext); }
int32_t llama_batch_ext_add_token(struct ext *ext, int32_t sequence, int32_t token) { (void)sequence; (void)token; return ext->n++; }
int32_t llama_batch_ext_add(struct ext *ext, int32_t sequence) { (void)sequence; return ext->n++; }
struct embd { const float *data; size_t rows, width; };
int32_t llama_batch_ext_add_embd(struct ext *ext, int32_t sequence, struct embd embd) { (void)sequence; return embd.width == 7 ? ext->n++ : -1; }
bool llama_batch_ext_set_output_logits(struct ext *ext, int32_t index, bool value) { (void)value; return index < ext->n; }
bool llama_batch_ext_set_output_embd(struct ext *ext, int32_t index, bool value) { (void)value; return index < ext->n; }
int _ZN13llama_context6decodeERK15llama_batch_ext(void *context, const struct ext *ext) {
    struct batch batch = {.n_tokens = ext->n};
    return _ZN13llama_context6decodeERK11llama_batch(context, &batch);
}
int32_t llama_process(void *context, int32_t type, struct ext *ext) { (void)type; return _ZN13llama_context6decodeERK15llama_batch_ext(context, ext); }
#endif
int llama_decode(void *context, struct batch batch) { return _ZN13llama_context6decodeERK11llama_batch(context, &batch); }
#endif

#ifdef PROGRAM
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    static int context;
#ifdef WHOLE
    int (*decode)(void *, struct batch) = llama_decode;
#else
    // As ctypes does.
    void *llama = dlopen("libllama.so", RTLD_NOW | RTLD_LOCAL);
    if (llama == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 9;
    }
    int (*decode)(void *, struct batch) = (int (*)(void *, struct batch))dlsym(llama, "llama_decode");
#endif
    if (!strcmp(how, "nothing")) return 0;
    struct batch prompt = {6}, one = {1};
    // A prompt of the same shape twice: the first one warms up.
    for (int i = 0; i < 2; i++) decode(&context, prompt);
    if (!strcmp(how, "fork")) {
        pid_t child = fork();
        if (child == 0) {
            decode(&context, one);
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    // As in speculation: a draft of three tokens, which the other one then checks, all at once.
    static int draft = 1;
    if (!strcmp(how, "draft")) {
        struct batch checked = {4};
        decode(&draft, prompt);
        for (int i = 0; i < 5; i++) {
            for (int n = 0; n < 3; n++) decode(&draft, one);
            decode(&context, checked);
        }
    }
    int decodes = getenv("DECODES") ? atoi(getenv("DECODES")) : 20;
    for (int i = 0; i < decodes; i++) decode(&context, one);
    printf("generated\n");
    fflush(stdout);
    // As a program that restarts itself: it keeps its number.
    if (!strcmp(how, "exec")) execv("/proc/self/exe", (char *[]){argv[0], "fail", NULL});
    if (!strcmp(how, "crash")) abort();
    if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(how, "wait")) {
        for (;;) pause();
    }
    // Once it is told to.
    if (!strcmp(how, "goes on")) {
        if (getchar() != 'g') return 8;
        for (int i = 0; i < decodes; i++) decode(&context, one);
        printf("went on\n");
        return 3;
    }
    return !strcmp(how, "fail") ? 3 : 0;
}
#endif
