// A server as llama.cpp's: a thread for each connection reads requests and sends what it is given, and one more computes for
// all of them. What each pass was for it prints, so that a recording can be held against it.
//
// A request's body is `NAME PROMPT TOKENS CACHED STREAM`: its name, how many tokens its prompt has, how many it asks for, how
// many of the prompt are in the cache of whichever slot it gets, and whether each is sent when it is there.
//
// Who asks by the name `cmpl-gone` gets five tokens, and then is waited for until they go away.
//
// With EXT, batches are those of newer versions.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SLOTS = 4, CHUNK = 32, MOST = 4096 };

struct batch { int32_t n_tokens; const int32_t *token; const float *embd; const int32_t *pos, *n_seq_id; const int32_t *const *seq_id; const int8_t *logits; };
struct request {
    char name[32];
    int prompt, tokens, cached, stream;
    // How many are there, how many of the prompt and of these are in the cache, and whether who asked has gone.
    int made, position;
    bool is_gone;
    // Of its own, so that a thousand don't wake for one's token.
    pthread_cond_t has_more;
    struct request *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct request *waiting, **last = &waiting;
int llama_decode(void *, struct batch);
int32_t llama_tokenize(const void *, const char *, int32_t, int32_t *, int32_t, bool, bool);
extern int llama_sequences[SLOTS], llama_adds[SLOTS];
struct embd { const float *data; size_t rows, width; };
struct ext *llama_batch_ext_init(void *);
void llama_batch_ext_clear(struct ext *);
int32_t llama_batch_ext_add_token(struct ext *, int32_t, int32_t);
int32_t llama_batch_ext_add_embd(struct ext *, int32_t, struct embd);
bool llama_batch_ext_set_output_logits(struct ext *, int32_t, bool);
int32_t llama_process(void *, int32_t, struct ext *);
static int connections, most_connections;

// Sends all of it, or says that nobody is there.
static bool tell(int fd, const char *text) {
    size_t len = strlen(text);
    while (len > 0) {
        ssize_t sent = send(fd, text, len, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        text += sent;
        len -= sent;
    }
    return true;
}
static bool is_held(const struct request *r) { return !strcmp(r->name, "cmpl-gone") && r->made >= 5; }
static bool tell_chunk(int fd, const char *text) {
    char chunk[1024];
    snprintf(chunk, sizeof chunk, "%zx\r\n%s\r\n", strlen(text), text);
    return tell(fd, chunk);
}

static bool answer(int fd, struct request *r) {
    char text[512], whole[1024];
    int told = 0;
    if (r->stream && !tell(fd, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")) return false;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (r->made <= told && !(told == 0 && r->tokens == 0)) pthread_cond_wait(&r->has_more, &lock);
        bool is_last = r->made == r->tokens;
        pthread_mutex_unlock(&lock);
        if (r->stream) {
            snprintf(text, sizeof text, "data: {\"choices\":[{\"text\":\"%d\",\"finish_reason\":null}],\"id\":\"%s\"}\n\n", told, r->name);
            if (!tell_chunk(fd, text)) return false;
        }
        told++;
        char byte;
        // As a server that looks whether somebody is there still.
        if (is_held(r) && told == 5 && recv(fd, &byte, 1, MSG_PEEK) <= 0) return false;
        if (is_last && told == r->tokens) break;
    }
    // A text that looks like an end is none.
    snprintf(text, sizeof text, "{\"choices\":[{\"text\":\"\\\"finish_reason\\\":\\\"stop\\\"\",\"finish_reason\":\"length\"}],\"id\":\"%s\"}", r->name);
    if (r->stream) {
        snprintf(whole, sizeof whole, "data: %s\n\n", text);
        return tell_chunk(fd, whole) && tell_chunk(fd, "data: [DONE]\n\n") && tell(fd, "0\r\n") && tell(fd, "\r\n");
    }
    snprintf(whole, sizeof whole, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n", strlen(text));
    return tell(fd, whole) && tell(fd, text);
}

// As a server that asks others: by the number of a connection that is closed, another socket sends.
static void use_again(int fd) {
    int all[64][2], n = 0;
    while (n < 64 && socketpair(AF_UNIX, SOCK_STREAM, 0, all[n]) == 0) {
        int *of = all[n++];
        if (of[0] != fd && of[1] != fd) continue;
        tell(fd, "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n");
        break;
    }
    while (n-- > 0) {
        close(all[n][0]);
        close(all[n][1]);
    }
}

static void *serve(void *of) {
    int fd = (int)(intptr_t)of;
    char buffer[8192];
    size_t has = 0;
    bool is_gone = false;
    for (;;) {
        buffer[has] = 0;
        char *end = strstr(buffer, "\r\n\r\n");
        char *length = strcasestr(buffer, "content-length:");
        size_t body = end != NULL && length != NULL && length < end ? atoi(length + 15) : 0;
        if (end == NULL || has < (size_t)(end + 4 - buffer) + body) {
            char piece[2048];
            // So that the compiler doesn't know that it fits, and checks it where it is told to.
            volatile size_t room = sizeof buffer - 1 - has < sizeof piece ? sizeof buffer - 1 - has : sizeof piece;
            ssize_t got = recv(fd, piece, room, 0);
            if (got <= 0) break;
            memcpy(buffer + has, piece, got);
            has += got;
            continue;
        }
        bool ok;
        if (!strncmp(buffer, "GET ", 4)) {
            ok = tell(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        } else {
            struct request *r = calloc(1, sizeof *r);
            pthread_cond_init(&r->has_more, NULL);
            // As a server that reads with care, and one that says what it waits for.
            if (strcasestr(buffer, "expect: 100") != NULL) tell(fd, "HTTP/1.1 100 Continue\r\n\r\n");
            int n = sscanf(end + 4, "%31s %d %d %d %d", r->name, &r->prompt, &r->tokens, &r->cached, &r->stream);
            if (n != 5) {
                ok = tell(fd, "HTTP/1.1 400 Bad Request\r\nContent-Length: 24\r\n\r\n{\"error\":{\"message\":\"\"}}");
            } else {
                char text[16];
                int32_t ids[MOST];
                llama_tokenize(NULL, text, snprintf(text, sizeof text, "%d", r->prompt), ids, MOST, true, true);
                pthread_mutex_lock(&lock);
                *last = r;
                last = &r->next;
                pthread_cond_broadcast(&changed);
                pthread_mutex_unlock(&lock);
                ok = answer(fd, r);
                if (!ok) {
                    is_gone = is_held(r);
                    pthread_mutex_lock(&lock);
                    r->is_gone = true;
                    pthread_mutex_unlock(&lock);
                }
            }
        }
        size_t used = end + 4 - buffer + body;
        memmove(buffer, buffer + used, has - used);
        has -= used;
        if (!ok) break;
    }
    close(fd);
    if (is_gone) use_again(fd);
    pthread_mutex_lock(&lock);
    connections++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void *listen_for_all(void *of) {
    int server = (int)(intptr_t)of;
    for (int n = 0; n < most_connections; n++) {
        int fd = n % 2 ? accept(server, NULL, NULL) : accept4(server, NULL, NULL, SOCK_CLOEXEC);
        pthread_t thread;
        pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd);
        pthread_detach(thread);
    }
    return NULL;
}

int main(int argc, char **argv) {
    static int context;
    int *sequences = llama_sequences, *adds = llama_adds;
    most_connections = argc > 1 ? atoi(argv[1]) : 1;

    int server = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    if (bind(server, (struct sockaddr *)&at, sizeof at) || listen(server, 4096) || getsockname(server, (struct sockaddr *)&at, &len)) return 8;
    // As a server that warms up.
    adds[0] = 2;
    llama_decode(&context, (struct batch){.n_tokens = 2});
    sequences[0] = 0;
    printf("pass \nport %d\n", ntohs(at.sin_port));
    fflush(stdout);
    pthread_t listener;
    pthread_create(&listener, NULL, listen_for_all, (void *)(intptr_t)server);

    struct request *slots[SLOTS] = {0};
    for (;;) {
        int tokens = 0;
        static int32_t ones[MOST], slot_of[SLOTS];
        static const int32_t *seq_ids[MOST];
        static int8_t logits[MOST];
        char line[512] = "pass";
        pthread_mutex_lock(&lock);
        for (;;) {
            bool is_busy = false;
            for (int i = 0; i < SLOTS; i++) {
                if (slots[i] != NULL && slots[i]->is_gone) slots[i] = NULL;
                if (slots[i] == NULL && waiting != NULL) {
                    slots[i] = waiting;
                    waiting = waiting->next;
                    if (waiting == NULL) last = &waiting;
                    int cached = slots[i]->cached < sequences[i] ? slots[i]->cached : sequences[i];
                    slots[i]->position = sequences[i] = cached;
                }
                is_busy = is_busy || (slots[i] != NULL && !is_held(slots[i]));
            }
            if (is_busy || connections == most_connections) break;
            pthread_cond_wait(&changed, &lock);
        }
        for (int i = 0; i < SLOTS; i++) {
            struct request *r = slots[i];
            if (r == NULL || is_held(r)) continue;
            int left = r->prompt - r->position;
            adds[i] = r->made > 0 ? 1 : left < CHUNK ? left : CHUNK;
            snprintf(line + strlen(line), sizeof line - strlen(line), " %s:%c%d@%d", r->name, r->made > 0 ? 'd' : 'p', adds[i], r->position);
            r->position += adds[i];
            slot_of[i] = i;
            for (int n = 0; n < adds[i]; n++, tokens++) {
                ones[tokens] = 1;
                seq_ids[tokens] = &slot_of[i];
                logits[tokens] = n + 1 == adds[i] && r->position >= r->prompt;
            }
        }
        pthread_mutex_unlock(&lock);
        if (tokens == 0) break;
#ifdef EXT
        (void)ones;
        static struct ext *ext;
        if (ext == NULL) ext = llama_batch_ext_init(&context);
        llama_batch_ext_clear(ext);
        for (int n = 0; n < tokens; n++) {
            int at = n % 3 ? llama_batch_ext_add_token(ext, *seq_ids[n], n) : llama_batch_ext_add_embd(ext, *seq_ids[n], (struct embd){NULL, 1, 7});
            if (logits[n]) llama_batch_ext_set_output_logits(ext, at, true);
        }
        llama_process(&context, 0, ext);
#else
        llama_decode(&context, (struct batch){.n_tokens = tokens, .n_seq_id = ones, .seq_id = seq_ids, .logits = logits});
#endif
        puts(line);
        pthread_mutex_lock(&lock);
        for (int i = 0; i < SLOTS; i++) {
            struct request *r = slots[i];
            if (r == NULL || is_held(r) || r->position < r->prompt) continue;
            if (++r->made == r->tokens) slots[i] = NULL;
            pthread_cond_signal(&r->has_more);
        }
        pthread_mutex_unlock(&lock);
    }
    return 0;
}
