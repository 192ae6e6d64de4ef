/* Traffic between two network namespaces of one virtual machine, with marks for crates/crypto/tools/count.c around it.
 *
 *   load FROM TO ADDRESS KIND COUNT
 *
 * FROM and TO are files of network namespaces, ADDRESS is TO's. KIND: `tcp`, one stream of COUNT KiB; `udp`, COUNT
 * datagrams of 64 bytes one way, 64 on their way at most; `one`, COUNT datagrams of 64 bytes and as many answers, each sent
 * when the other has come. As much again as an eighth of it goes first and is not marked: windows open, caches
 * fill. Printed is what was carried, the task switches of the whole machine meanwhile, and datagrams lost.
 *
 * It is linked statically at a fixed address below 256 MB, by which count.c tells its instructions and system calls
 * from those of other programs.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PORT = 5000, SMALL = 64, TOGETHER = 32, WINDOW = 64, CHUNK = 128 << 10 };

static char buffer[CHUNK];

/* No-operations with a number that count.c looks for: where counting begins, and where it ends. */
#define BEGIN __asm__ volatile(".byte 0x0f, 0x1f, 0x84, 0x00; .long 0x4d41524b" ::: "memory")
#define END __asm__ volatile(".byte 0x0f, 0x1f, 0x84, 0x00; .long 0x4d41524c" ::: "memory")

static void fail(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void enter(const char *namespace)
{
    int file = open(namespace, O_RDONLY);
    if (file < 0 || setns(file, CLONE_NEWNET))
        fail(namespace);
    close(file);
}

static long switches(void)
{
    FILE *stat = fopen("/proc/stat", "r");
    char line[4096];
    long count = 0;
    while (stat && fgets(line, sizeof line, stat))
        if (sscanf(line, "ctxt %ld", &count) == 1)
            break;
    if (stat)
        fclose(stat);
    return count;
}

static int make_socket(int type)
{
    int one = 1, made = socket(AF_INET, type, 0);
    if (made < 0 || setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one))
        fail("socket");
    return made;
}

/* What waits so long for a datagram has lost it. */
static void bound_waits(int socket)
{
    struct timeval second = {.tv_sec = 1};
    if (setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second))
        fail("SO_RCVTIMEO");
}

/* Reads `left` bytes of a stream. */
static void drain(int socket, long left)
{
    while (left > 0) {
        ssize_t got = read(socket, buffer, left < CHUNK ? (size_t)left : CHUNK);
        if (got <= 0)
            fail("read");
        left -= got;
    }
}

static void fill(int socket, long left)
{
    while (left > 0) {
        ssize_t put = write(socket, buffer, left < CHUNK ? (size_t)left : CHUNK);
        if (put <= 0)
            fail("write");
        left -= put;
    }
}

/* The other end. `parts` are the two parts of the traffic: before the marks, and between them. */
static void sink(int socket, const char *kind, const long parts[2])
{
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    if (!strcmp(kind, "tcp")) {
        int stream = accept(socket, NULL, NULL);
        if (stream < 0)
            fail("accept");
        for (int part = 0; part < 2; part++) {
            drain(stream, parts[part] * 1024);
            fill(stream, 1);
        }
        return;
    }
    /* Until it is ended: each answer is one datagram, and for many one. */
    long each = strcmp(kind, "one") ? TOGETHER : 1;
    for (long received = 1;; received++) {
        ssize_t got = recvfrom(socket, buffer, SMALL, 0, (struct sockaddr *)&from, &length);
        if (got < 0)
            fail("recvfrom");
        if (received % each == 0)
            sendto(socket, buffer, SMALL, 0, (struct sockaddr *)&from, length);
    }
}

/* Datagrams, `window` on their way at most, an answer for each `each`. Returns how many were lost. */
static long datagrams(int socket, long count, long window, long each)
{
    long sent = 0, done = 0, lost = 0;
    while (done < count) {
        for (; sent < count && sent - done < window; sent++)
            if (send(socket, buffer, SMALL, 0) < 0 && errno != ECONNREFUSED)
                fail("send");
        if (recv(socket, buffer, SMALL, 0) > 0) {
            done += each;
        } else {
            /* What was on its way is gone, or a part of it: the answer comes with what is sent next. */
            lost += each;
            done += each;
        }
    }
    return lost;
}

int main(int count, char **words)
{
    if (count != 6) {
        fprintf(stderr, "usage: load FROM TO ADDRESS tcp|udp|one COUNT\n");
        return 2;
    }
    const char *kind = words[4];
    int stream = !strcmp(kind, "tcp"), one = !strcmp(kind, "one");
    long all = atol(words[5]), lost = 0, before = 0, after = 0;
    long parts[2] = {(all / 8 + TOGETHER) / TOGETHER * TOGETHER, all / TOGETHER * TOGETHER};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    inet_pton(AF_INET, words[3], &to.sin_addr);

    enter(words[2]);
    int there = make_socket(stream ? SOCK_STREAM : SOCK_DGRAM);
    if (bind(there, (struct sockaddr *)&to, sizeof to) || (stream && listen(there, 1)))
        fail("bind");
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (!child) {
        /* What it waits for does not take the processor from who sends: a switch for each datagram would be the load's. */
        struct sched_param none = {0};
        if (sched_setscheduler(0, SCHED_BATCH, &none))
            fail("sched_setscheduler");
        sink(there, kind, parts);
        return 0;
    }
    close(there);
    enter(words[1]);
    int here = make_socket(stream ? SOCK_STREAM : SOCK_DGRAM);
    if (!stream)
        bound_waits(here);
    if (connect(here, (struct sockaddr *)&to, sizeof to))
        fail("connect");
    for (int part = 0; part < 2; part++) {
        if (part) {
            before = switches();
            BEGIN;
        }
        if (stream) {
            fill(here, parts[part] * 1024);
            drain(here, 1);
        } else {
            lost = datagrams(here, parts[part], one ? 1 : WINDOW, one ? 1 : TOGETHER);
        }
        if (part) {
            END;
            after = switches();
        }
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    printf("%ld %ld %ld\n", parts[1], after - before, lost);
    return 0;
}
