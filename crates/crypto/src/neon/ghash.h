/* GHASH of whole packets by NEON's products of bytes. */
#ifndef MILLRACE_GHASH_H
#define MILLRACE_GHASH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __aarch64__

/* Blocks that are multiplied before one reduction. */
enum { GHASH_GROUP = 16 };

/* Powers of the hash key, the highest first: the upper halves, the lower halves and their sums, each in the eight turns in which
 * it meets the other factor. */
struct ghash_key {
	uint8_t turns[3][GHASH_GROUP][8][8] __attribute__((aligned(16)));
};

#else

/* How many times eight blocks are multiplied before one reduction, and sums of bytes of each, nine times nine. */
enum { GHASH_EIGHTS = 12, GHASH_NINES = 9, GHASH_SUMS = 9 };

/* Sums of bytes of powers of the hash key, the highest first, eight powers side by side. */
struct ghash_key {
	uint8_t sums[GHASH_NINES][GHASH_EIGHTS][GHASH_SUMS][8] __attribute__((aligned(16)));
};

#endif

/* From the encrypted zero block. */
void millrace_ghash_key(struct ghash_key *key, const uint8_t *h);

/* The hash of a packet, with its lengths. */
void millrace_ghash(const struct ghash_key *key, const uint8_t *aad, size_t aad_len, const uint8_t *text, size_t text_len,
		    uint8_t *hash);

#endif
