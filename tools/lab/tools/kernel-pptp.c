/*
 * A plug-in of pppd that carries PPP over the kernel's own PPTP, for counting: Debian has no program that does. Packets never
 * leave the kernel, which encrypts them (ppp_mppe) and wraps them in GRE (pptp).
 *
 *   pppd plugin kernel-pptp.so pptp-server ADDRESS ...
 *
 * It makes the control connection and one call (RFC 2637, sections 2 and 3), answers echo requests in a process of its own,
 * and has pppd do the rest. For the lab only: what it is sent is not distrusted.
 */
#include <arpa/inet.h>
#include <linux/if_pppox.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <pppd/pppd.h>
#include <pppd/fsm.h>
#include <pppd/lcp.h>

char pppd_version[] = VERSION;

enum { PORT = 1723, COOKIE = 0x1a2b3c4d, OUR_CALL = 7, BOTH = 3, WINDOW = 64 };
/* Types of messages, and their lengths. */
enum { START = 1, STARTED = 2, ECHO = 5, ECHOED = 6, CALL = 7, CALLED = 8 };
enum { START_LEN = 156, ECHO_LEN = 16, ECHOED_LEN = 20, CALL_LEN = 168, CALLED_LEN = 32, LONGEST = 220 };

static char *server;
static pid_t echoing;
static int control = -1;

static option_t options[] = {
    {.name = "pptp-server", .type = o_string, .addr = &server, .description = "the server's address", .flags = OPT_PRIO},
    {.name = NULL},
};

static void put16(uint8_t *at, uint16_t value) {
    value = htons(value);
    memcpy(at, &value, 2);
}

static void put32(uint8_t *at, uint32_t value) {
    value = htonl(value);
    memcpy(at, &value, 4);
}

static uint16_t get16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

/* A message with its header, and nothing in it. */
static void begin(uint8_t *message, uint16_t len, uint16_t type) {
    memset(message, 0, len);
    put16(message, len);
    put16(message + 2, 1);
    put32(message + 4, COOKIE);
    put16(message + 8, type);
}

static int all(const uint8_t *message, size_t len) { return write(control, message, len) == (ssize_t)len; }

/* The type of the next message, or 0 at the end. */
static int next(uint8_t *message) {
    size_t len = 2, got = 0;
    while (got < len) {
        ssize_t n = read(control, message + got, len - got);
        if (n <= 0) return 0;
        got += (size_t)n;
        if (got == 2) len = get16(message);
        if (len < 12 && got >= 2) return 0;
        if (len > LONGEST) return 0;
    }
    return get16(message + 8);
}

/* Answers echo requests for as long as pppd lives. */
static void answer_echoes(void) {
    uint8_t message[LONGEST], reply[ECHOED_LEN];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        int type = next(message);
        if (type == 0) _exit(0);
        if (type != ECHO) continue;
        begin(reply, ECHOED_LEN, ECHOED);
        memcpy(reply + 12, message + 12, 4);
        reply[16] = 1;
        if (!all(reply, ECHOED_LEN)) _exit(0);
    }
}

/* The server's number of a new call, or -1. */
static int call(struct in_addr address) {
    uint8_t message[LONGEST];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr = address};
    control = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (control < 0 || connect(control, (struct sockaddr *)&to, sizeof to) < 0) {
        error("kernel-pptp: %s: %m", server);
        return -1;
    }
    begin(message, START_LEN, START);
    put16(message + 12, 0x0100);
    put32(message + 16, BOTH);
    put32(message + 20, BOTH);
    if (!all(message, START_LEN) || next(message) != STARTED || message[14] != 1) return -1;
    begin(message, CALL_LEN, CALL);
    put16(message + 12, OUR_CALL);
    put32(message + 16, 2400);
    put32(message + 20, 1000000000);
    put32(message + 24, BOTH);
    put32(message + 28, BOTH);
    put16(message + 32, WINDOW);
    if (!all(message, CALL_LEN) || next(message) != CALLED || message[16] != 1) return -1;
    return get16(message + 12);
}

static int pptp_connect(void) {
    struct sockaddr_pppox here = {.sa_family = AF_PPPOX, .sa_protocol = PX_PROTO_PPTP};
    struct sockaddr_pppox there = here;
    struct sockaddr_in own;
    socklen_t len = sizeof own;
    struct in_addr address;
    int fd, theirs;
    if (server == NULL || inet_aton(server, &address) == 0) {
        error("kernel-pptp: no address of a server");
        return -1;
    }
    theirs = call(address);
    if (theirs < 0 || getsockname(control, (struct sockaddr *)&own, &len) < 0) {
        error("kernel-pptp: no call");
        return -1;
    }
    fd = socket(AF_PPPOX, SOCK_STREAM, PX_PROTO_PPTP);
    here.sa_addr.pptp.call_id = OUR_CALL;
    here.sa_addr.pptp.sin_addr = own.sin_addr;
    there.sa_addr.pptp.call_id = (uint16_t)theirs;
    there.sa_addr.pptp.sin_addr = address;
    if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof here) < 0 ||
        connect(fd, (struct sockaddr *)&there, sizeof there) < 0) {
        error("kernel-pptp: the kernel's PPTP: %m");
        return -1;
    }
    echoing = fork();
    if (echoing == 0) answer_echoes();
    strlcpy(ppp_devnam, server, sizeof ppp_devnam);
    return fd;
}

static void pptp_disconnect(void) {
    if (echoing > 0) kill(echoing, SIGKILL);
    close(control);
    control = -1;
}

/* Characters are never escaped, and headers never shortened. */
static void pptp_config(int mtu, u_int32_t accm, int pcomp, int accomp) { (void)mtu, (void)accm, (void)pcomp, (void)accomp; }

static struct channel pptp_channel = {
    .options = options,
    .connect = pptp_connect,
    .disconnect = pptp_disconnect,
    .establish_ppp = generic_establish_ppp,
    .disestablish_ppp = generic_disestablish_ppp,
    .send_config = pptp_config,
    .recv_config = pptp_config,
};

void plugin_init(void) {
    add_options(options);
    the_channel = &pptp_channel;
    modem = 0;
    lcp_wantoptions[0].neg_asyncmap = 0;
    lcp_allowoptions[0].neg_asyncmap = 0;
    lcp_wantoptions[0].neg_pcompression = 0;
    lcp_allowoptions[0].neg_pcompression = 0;
    lcp_wantoptions[0].neg_accompression = 0;
    lcp_allowoptions[0].neg_accompression = 0;
}
