/* Multiplication modulo 2048 bits, Montgomery's way: what RSA consists of. Limbs of 32 bits, as C for 32-bit processors
 * has them. */
#include "flags.h"

#include <string.h>

enum { LIMBS = 64, TIMES = 64 };
static uint32_t modulus[LIMBS], base[LIMBS], power[LIMBS], inverse;

/* row += limbs * by; gives the limb above. */
static uint32_t multiply_add(uint32_t *row, const uint32_t *limbs, uint32_t by)
{
    uint64_t carry = 0;
    for (int at = 0; at < LIMBS; at++) {
        carry += (uint64_t)limbs[at] * by + row[at];
        row[at] = (uint32_t)carry;
        carry >>= 32;
    }
    return (uint32_t)carry;
}

/* out = a * b / 2^2048, modulo the modulus, below 2^2048. */
static void multiply(uint32_t *out, const uint32_t *a, const uint32_t *b)
{
    uint32_t row[2 * LIMBS + 1] = {0}, over = 0;
    for (int at = 0; at < LIMBS; at++) {
        uint64_t above = (uint64_t)over + row[at + LIMBS] + multiply_add(row + at, a, b[at]);
        above += multiply_add(row + at, modulus, row[at] * inverse);
        row[at + LIMBS] = (uint32_t)above;
        over = (uint32_t)(above >> 32);
    }
    uint32_t borrow = 0;
    for (int at = 0; over && at < LIMBS; at++) {
        uint64_t left = (uint64_t)row[at + LIMBS] - modulus[at] - borrow;
        row[at + LIMBS] = (uint32_t)left;
        borrow = left >> 63;
    }
    memcpy(out, row + LIMBS, LIMBS * sizeof *out);
}

/* Numbers without meaning: the modulus is odd and has its highest bit, the base is smaller. */
static bool modular_prepare(void)
{
    uint32_t next = 1;
    for (int at = 0; at < LIMBS; at++) {
        next = next * 1664525 + 1013904223;
        modulus[at] = next;
        base[at] = next >> 1 ^ 0x5a5a5a5a;
    }
    modulus[0] |= 1;
    modulus[LIMBS - 1] |= 0x80000000;
    base[LIMBS - 1] &= 0x7fffffff;
    /* -1 / modulus, modulo 2^32: each step doubles the bits that are right. */
    inverse = 1;
    for (int step = 0; step < 5; step++)
        inverse *= 2 + modulus[0] * inverse;
    return true;
}

static void modular_run(void)
{
    memcpy(power, base, sizeof power);
    for (int times = 0; times < TIMES; times++)
        multiply(power, power, base);
}

/* Computed with whole numbers of any length. Either of the two numbers below 2^2048 may be what came out. */
static bool modular_is_right(void)
{
    uint32_t reduced[LIMBS], borrow = 0;
    for (int at = 0; at < LIMBS; at++) {
        uint64_t left = (uint64_t)power[at] - modulus[at] - borrow;
        reduced[at] = (uint32_t)left;
        borrow = left >> 63;
    }
    uint32_t first = borrow ? power[0] : reduced[0], last = borrow ? power[LIMBS - 1] : reduced[LIMBS - 1];
    return first == 0xd946589e && last == 0x55a067f2;
}

/* Not by the byte: 64 multiplications are counted. */
const struct test modular_test = {"mod-2048", 0, modular_prepare, modular_run, modular_is_right};
