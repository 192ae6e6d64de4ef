/* What the parts of the test of compiler options have in common. main.c says what it is. */
#ifndef FLAGS_H
#define FLAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Packets that each cipher works on, and the bytes of each: a full packet of a tunnel. */
enum { PACKETS = 64, PACKET = 1408 };

/* Something to count. Tables and keys are made by `prepare`, which is not counted. */
struct test {
    const char *name;
    /* That `run` works on; 0 where instructions are counted as a whole. */
    size_t bytes;
    bool (*prepare)(void);
    void (*run)(void);
    bool (*is_right)(void);
};

extern const struct test memory_test, pi_test, e_test, float_test;
extern const struct test sha1_test, sha256_test, sha512_test;
extern const struct test aes_test, chacha20_test, poly1305_test;
extern const struct test modular_test;

/* A sum over bytes, to compare results by: FNV-1a of 32 bits. */
static inline uint32_t fnv(const uint8_t *bytes, size_t count)
{
    uint32_t sum = 0x811c9dc5;
    for (size_t at = 0; at < count; at++)
        sum = (sum ^ bytes[at]) * 0x01000193;
    return sum;
}

/* Byte orders as portable code has them; compilers know what is meant. */
static inline uint32_t load_be32(const uint8_t *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

static inline void store_be32(uint8_t *to, uint32_t value)
{
    to[0] = value >> 24, to[1] = value >> 16, to[2] = value >> 8, to[3] = value;
}

static inline uint32_t load_le32(const uint8_t *from)
{
    return (uint32_t)from[3] << 24 | (uint32_t)from[2] << 16 | (uint32_t)from[1] << 8 | from[0];
}

static inline void store_le32(uint8_t *to, uint32_t value)
{
    to[3] = value >> 24, to[2] = value >> 16, to[1] = value >> 8, to[0] = value;
}

static inline uint32_t rotl32(uint32_t value, int bits)
{
    return value << bits | value >> (32 - bits);
}

#endif
