/* Memory, pi and e, as `millrace speed --system` has them (tools/bench/src/speed/system), and floating
 * point.
 *
 * The paper on routers (Software & Systems 4/2020) timed pi and e; widely known small programs for so many digits are a
 * spigot for pi, four digits at a time, and one for e with 9009 places, a digit at a time. They divide at every step,
 * and by numbers that the compiler does not know: without an instruction for it, that is a call. Numbers are signed, as
 * in those programs; the ones in Rust are not.
 */
#include "flags.h"

#include <stdlib.h>
#include <string.h>

/* FNV-1a of the digits, computed by other formulas (Machin's, and the plain sum of 1/n!) with long whole numbers. */
enum { PI_SUM = 0x633d781f };
static const uint32_t E_SUM = 0xba244759;

/* 16 MiB: more than the caches of any router. */
enum { WORDS = 4 << 20, MEMORY_ROUNDS = 10 };
static const uint32_t STEP = 0x9e3779b1, CHANGE = 0x5bd1e995;

static uint32_t *from, *to, memory_sum;

static bool memory_prepare(void)
{
    from = malloc(WORDS * sizeof *from);
    to = malloc(WORDS * sizeof *to);
    if (!from || !to)
        return false;
    /* So that the kernel gives the pages now. */
    memset(from, 1, WORDS * sizeof *from);
    memset(to, 1, WORDS * sizeof *to);
    return true;
}

/* Written, copied with a change, and read: three passes. */
static void memory_run(void)
{
    uint32_t sum = 0;
    for (uint32_t round = 0; round < MEMORY_ROUNDS; round++) {
        for (uint32_t at = 0; at < WORDS; at++)
            from[at] = at * STEP + round;
        for (uint32_t at = 0; at < WORDS; at++)
            to[at] = from[at] + CHANGE;
        for (uint32_t at = 0; at < WORDS; at++)
            sum += to[at];
    }
    memory_sum = sum;
}

static bool memory_is_right(void)
{
    uint64_t words = WORDS, rounds = MEMORY_ROUNDS;
    uint64_t places = rounds * (words * (words - 1) / 2), turns = words * (rounds * (rounds - 1) / 2);
    free(from);
    free(to);
    return memory_sum == (uint32_t)((uint32_t)places * STEP + turns + (uint32_t)(words * rounds) * CHANGE);
}

/* pi = 2 + 1/3 (2 + 2/5 (2 + 3/7 (2 + ...))): a number whose places have the bases 1, 3/1, 5/2, 7/3 ...; four decimal
 * digits fall out at each multiplication by 10000, and need 14 places. */
enum { PI_DIGITS = 2400, PI_PLACES = PI_DIGITS / 4 * 14, PI_TIMES = 10 };
static int32_t pi_places[PI_PLACES + 1];
static uint8_t pi_digits[PI_DIGITS];

static bool nothing(void)
{
    return true;
}

static void pi_once(void)
{
    int32_t held = 0;
    uint8_t *out = pi_digits;
    for (int32_t place = 1; place <= PI_PLACES; place++)
        pi_places[place] = 2000;
    for (int32_t last = PI_PLACES; last > 0; last -= 14) {
        int32_t carry = 0;
        for (int32_t place = last; place > 0; place--) {
            int32_t value = carry * place + pi_places[place] * 10000, base = 2 * place - 1;
            pi_places[place] = value % base;
            carry = value / base;
        }
        int32_t four = held + carry / 10000;
        held = carry % 10000;
        for (int32_t unit = 1000; unit > 0; unit /= 10)
            *out++ = '0' + four / unit % 10;
    }
}

static void pi_run(void)
{
    for (int times = 0; times < PI_TIMES; times++)
        pi_once();
}

static bool pi_is_right(void)
{
    return !memcmp(pi_digits, "31415926535897932384", 20) && fnv(pi_digits, PI_DIGITS) == PI_SUM;
}

/* e - 2 = 1/2! + 1/3! + ...: a number whose places have the bases 2, 3, 4 ... and are all one. A decimal digit falls
 * out at each multiplication by ten; behind each, a place fewer is needed. */
enum { E_PLACES = 9009, E_DIGITS = E_PLACES - 9 };
static int32_t e_places[E_PLACES];
static uint8_t e_digits[E_DIGITS];

static void e_run(void)
{
    for (int32_t place = 2; place < E_PLACES; place++)
        e_places[place] = 1;
    for (int32_t digit = 0, last = E_PLACES - 1; digit < E_DIGITS; digit++, last--) {
        int32_t carry = 0;
        for (int32_t place = last; place > 1; place--) {
            int32_t value = 10 * e_places[place] + carry;
            e_places[place] = value % place;
            carry = value / place;
        }
        e_digits[digit] = '0' + carry;
    }
}

static bool e_is_right(void)
{
    return !memcmp(e_digits, "71828182845904523536", 20) && fnv(e_digits, E_DIGITS) == E_SUM;
}

/* Three taps over numbers that rise evenly: nothing changes, without any rounding. */
enum { NUMBERS = 4096, FLOAT_TIMES = 100 };
static float singles[NUMBERS], singles_out[NUMBERS];
static double doubles[NUMBERS], doubles_out[NUMBERS];

static bool float_prepare(void)
{
    for (int at = 0; at < NUMBERS; at++)
        singles[at] = doubles[at] = at;
    return true;
}

static void float_run(void)
{
    for (int times = 0; times < FLOAT_TIMES; times++) {
        for (int at = 1; at < NUMBERS - 1; at++)
            singles_out[at] = 0.25f * singles[at - 1] + 0.5f * singles[at] + 0.25f * singles[at + 1];
        for (int at = 1; at < NUMBERS - 1; at++)
            doubles_out[at] = 0.25 * doubles[at - 1] + 0.5 * doubles[at] + 0.25 * doubles[at + 1];
    }
}

static bool float_is_right(void)
{
    for (int at = 1; at < NUMBERS - 1; at++)
        if (singles_out[at] != (float)at || doubles_out[at] != (double)at)
            return false;
    return true;
}

const struct test memory_test = {"memory", 0, memory_prepare, memory_run, memory_is_right};
const struct test pi_test = {"pi", 0, nothing, pi_run, pi_is_right};
const struct test e_test = {"e", 0, nothing, e_run, e_is_right};
const struct test float_test = {"float", 0, float_prepare, float_run, float_is_right};
