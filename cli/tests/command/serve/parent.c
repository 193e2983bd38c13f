// A parent as Ollama is one: it starts servers, reads on which ports they listen, and passes what it is asked on to them, a
// connection to each in turn.
//
// Its arguments are `SERVER CHILDREN EACH`: what to start, how many of it, and how many connections each gets.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 8 };

// Starts a server, and returns its port. What it says later stays in the pipe.
static int start(char *server, char *connections) {
    int ends[2], port = 0;
    char line[512];
    if (pipe(ends)) exit(8);
    pid_t pid = fork();
    if (pid < 0) exit(8);
    if (pid == 0) {
        char *words[] = {server, connections, NULL};
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execv(server, words);
        _exit(9);
    }
    close(ends[1]);
    FILE *said = fdopen(ends[0], "r");
    while (said != NULL && fgets(line, sizeof line, said) != NULL && sscanf(line, "port %d", &port) != 1) {}
    return port;
}

static int tell(int fd, const char *text, size_t len) {
    while (len > 0) {
        ssize_t sent = send(fd, text, len, MSG_NOSIGNAL);
        if (sent <= 0) return 0;
        text += sent;
        len -= sent;
    }
    return 1;
}

// Passes a question on, and the answer back, up to the end of a stream.
static void pass_on(int client, int port) {
    static char all[1 << 16];
    const char ends[] = "\r\n0\r\n\r\n";
    size_t has = 0, ended = sizeof ends - 1;
    for (;;) {
        all[has] = 0;
        char *head = strstr(all, "\r\n\r\n"), *length = strstr(all, "Content-Length:");
        if (head != NULL && length != NULL && has >= (size_t)(head + 4 - all) + atoi(length + 15)) break;
        ssize_t got = recv(client, all + has, sizeof all - 1 - has, 0);
        if (got <= 0) return;
        has += got;
    }
    int server = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (connect(server, (struct sockaddr *)&at, sizeof at) || !tell(server, all, has)) exit(7);
    for (has = 0; has < ended || memcmp(all + has - ended, ends, ended);) {
        ssize_t got = recv(server, all + has, sizeof all - has, 0);
        if (got <= 0 || !tell(client, all + has, got)) break;
        has += got;
    }
    close(server);
}

int main(int argc, char **argv) {
    int ports[MOST], children = argc == 4 ? atoi(argv[2]) : 0, each = argc == 4 ? atoi(argv[3]) : 0, is_bad = 0;
    if (children < 1 || children > MOST) return 6;
    for (int n = 0; n < children; n++) ports[n] = start(argv[1], argv[3]);
    int own = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    if (bind(own, (struct sockaddr *)&at, sizeof at) || listen(own, 64) || getsockname(own, (struct sockaddr *)&at, &len)) return 8;
    printf("port %d\n", ntohs(at.sin_port));
    fflush(stdout);
    for (int n = 0; n < children * each; n++) {
        int fd = accept(own, NULL, NULL);
        pass_on(fd, ports[n % children]);
        close(fd);
    }
    for (int status = 0; wait(&status) > 0;) is_bad |= status != 0;
    return is_bad;
}
