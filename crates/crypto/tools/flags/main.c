/* What the compiler's options do to a program: work to count instructions of, built again and again by
 * scripts/arm-flags.
 *
 * The first tests are those of `millrace speed --system`, in C and with the same steps: memory, pi and e; `float` is
 * added, for there is no floating point in those. The rest is what a crypto library consists of where it was built
 * without assembly: ordinary C, with rounds written out as such libraries have them. Not for use: AES looks secret
 * bytes up in tables.
 *
 *   flags [NAME ...]
 *
 * Regions are marked for count.c: getpriority(MAGIC, id), an even id to begin and the next odd one to end. For each
 * region one line comes out, "<id> <name> <bytes>". What comes out wrong ends the program with status 1.
 */
#define _GNU_SOURCE
#include "flags.h"

#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* "MARK" in ASCII; also in count.c. */
static const long MAGIC = 0x4d41524b;

static const struct test *const tests[] = {
    &memory_test, &pi_test,  &e_test,        &float_test,    &sha1_test,    &sha256_test,
    &sha512_test, &aes_test, &chacha20_test, &poly1305_test, &modular_test,
};

static void mark(long id)
{
    syscall(SYS_getpriority, MAGIC, id);
}

static bool is_wanted(const char *name, int count, char **names)
{
    for (int at = 0; at < count; at++)
        if (!strcmp(names[at], name))
            return true;
    return count == 0;
}

int main(int count, char **arguments)
{
    for (size_t at = 0; at < sizeof tests / sizeof *tests; at++) {
        const struct test *test = tests[at];
        long id = (long)(2 * at);
        if (!is_wanted(test->name, count - 1, arguments + 1))
            continue;
        if (!test->prepare()) {
            fprintf(stderr, "flags: %s: not ready, or a published vector comes out wrong\n", test->name);
            return 1;
        }
        mark(id);
        test->run();
        mark(id + 1);
        if (!test->is_right()) {
            fprintf(stderr, "flags: %s: a wrong result\n", test->name);
            return 1;
        }
        printf("%ld %s %zu\n", id, test->name, test->bytes);
    }
    return 0;
}
