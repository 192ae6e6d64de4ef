/* Numbered datagrams between two network namespaces, both ways at once, until a signal ends them.
 *
 *   numbers A B ADDRESS-OF-A ADDRESS-OF-B
 *
 * A and B are files of network namespaces. Fifty times a second 16 datagrams of one size go each way, so that they
 * can travel as a train. After SIGTERM the last ones have two seconds to arrive. Then one line for each way is printed:
 * how many were sent, lost, received twice, and received behind a later one. The status is 1 if any was lost or came
 * twice.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 5010, SIZE = 600, TOGETHER = 16, MOST = 1 << 24, ROOM = 8 << 20 };

struct way {
    const char *name;
    int from, to;
    uint32_t sent, newest, twice, late;
};

static uint8_t seen[2][MOST];
static volatile sig_atomic_t ends;

static void end(int signal)
{
    (void)signal;
    ends = 1;
}

static void fail(const char *what)
{
    fprintf(stderr, "numbers: %s: %s\n", what, strerror(errno));
    exit(2);
}

/* A socket in a namespace with this address; port 0 is any. */
static int make_socket(const char *namespace, const char *address, int port)
{
    int file = open(namespace, O_RDONLY), room = ROOM;
    if (file < 0 || setns(file, CLONE_NEWNET))
        fail(namespace);
    close(file);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, address, &here.sin_addr);
    int made = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    if (made < 0 || bind(made, (struct sockaddr *)&here, sizeof here))
        fail(address);
    setsockopt(made, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    setsockopt(made, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
    return made;
}

static void receive(struct way *way, uint8_t *seen)
{
    char bytes[SIZE];
    uint32_t number;
    while (recv(way->to, bytes, sizeof bytes, 0) == SIZE) {
        memcpy(&number, bytes, sizeof number);
        if (number >= way->sent)
            continue;
        if (seen[number]++)
            way->twice++;
        if (number < way->newest)
            way->late++;
        else
            way->newest = number;
    }
}

static void transmit(struct way *way)
{
    char bytes[SIZE] = {0};
    for (int i = 0; i < TOGETHER && way->sent < MOST; i++) {
        memcpy(bytes, &way->sent, sizeof way->sent);
        /* A datagram that this host refused was not sent. */
        if (send(way->from, bytes, sizeof bytes, 0) != SIZE)
            return;
        way->sent++;
    }
}

int main(int count, char **word)
{
    if (count != 5)
        return 2;
    struct way ways[2] = {{.name = "to b"}, {.name = "to a"}};
    struct timespec tick = {.tv_nsec = 20 * 1000 * 1000};
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(PORT)};
        inet_pton(AF_INET, word[4 - i], &there.sin_addr);
        ways[i].from = make_socket(word[1 + i], word[3 + i], 0);
        ways[i].to = make_socket(word[2 - i], word[4 - i], PORT);
        if (connect(ways[i].from, (struct sockaddr *)&there, sizeof there))
            fail("connect");
    }
    signal(SIGTERM, end);
    for (int left = 100; left > 0; left -= ends) {
        for (int i = 0; i < 2; i++) {
            if (!ends)
                transmit(&ways[i]);
            receive(&ways[i], seen[i]);
        }
        nanosleep(&tick, NULL);
    }
    int bad = 0;
    for (int i = 0; i < 2; i++) {
        uint32_t lost = 0;
        for (uint32_t number = 0; number < ways[i].sent; number++)
            lost += !seen[i][number];
        printf("%s: %u sent, %u lost, %u twice, %u late\n", ways[i].name, ways[i].sent, lost, ways[i].twice,
               ways[i].late);
        bad |= lost || ways[i].twice || !ways[i].sent;
    }
    return bad;
}
