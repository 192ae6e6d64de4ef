/* GHASH (NIST SP 800-38D, section 6.4) on AArch64's NEON without a product of 64 bits, in constant time.
 *
 * A block is read as a number of 128 bits, most significant byte first. Bit 127 - i stands for x^i, so that the numbers are the
 * polynomials backwards; with y^k for bit k the modulus is R = y^128 + y^127 + y^126 + y^121 + 1, and the product of blocks a and
 * b is a b y^-127 mod R. Keys are kept times y, which leaves a b' y^-128: one step of Montgomery's reduction, which is short
 * because R is 1 in its lowest 121 bits.
 *
 * `vmull.p8` multiplies eight bytes by eight bytes. For a product of 64 bits each byte must meet each of the other: eight
 * times, the key's bytes turned by one more place each time. The turned keys are made beforehand. Karatsuba's method makes a
 * block three such products. What the eight turns give is added up over a group of blocks before it is put together, as all of
 * it is linear: that leaves eight products and eight sums for 64 bits of each block.
 */
#ifdef __aarch64__

#include <arm_neon.h>
#include <string.h>

#include "aes_bitsliced.h"
#include "ghash.h"

enum { TURNS = 8, UPPER = 0, LOWER = 1, SUM = 2 };

/* Blocks that wait for their group: upper halves, lower halves, sums. */
struct group {
	uint64_t parts[3][GHASH_GROUP] __attribute__((aligned(16)));
	size_t filled;
	/* The sum so far. */
	uint64x2_t hash;
};

/* Bytes k to 15 - k. */
static const uint8_t windows[8][16] __attribute__((aligned(16))) = {
	{ 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255 },
	{ 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0 },
	{ 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0 },
	{ 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0 },
	{ 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0 },
	{ 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0 },
	{ 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0 },
	{ 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 0, 0, 0, 0, 0 },
};

/* What turn k of a product of 64 bits has to give: byte i of one factor by byte i + k mod 8 of the other belongs at byte 2i + k,
 * or eight bytes lower if i + k is 8 or more. So the lower lanes of turn k move up by k bytes, and the upper ones of turn 8 - k
 * down by k, and both then fill the same window. */
#define WINDOW(k)                                                                                                          \
	vandq_u8(veorq_u8(vextq_u8(turn[k], turn[k], 16 - (k)), vextq_u8(turn[8 - (k)], turn[8 - (k)], (k))),               \
		 vld1q_u8(windows[k]))

static inline uint64x2_t put_together(const uint8x16_t turn[TURNS])
{
	uint8x16_t sum = veorq_u8(turn[0], WINDOW(1));
	sum = veorq_u8(sum, WINDOW(2));
	sum = veorq_u8(sum, WINDOW(3));
	sum = veorq_u8(sum, WINDOW(4));
	sum = veorq_u8(sum, WINDOW(5));
	sum = veorq_u8(sum, WINDOW(6));
	sum = veorq_u8(sum, WINDOW(7));
	return vreinterpretq_u64_u8(sum);
}

/* Of each waiting block one part by the same part of its power of the key, all added up. */
static inline uint64x2_t products(const struct group *group, const struct ghash_key *key, unsigned part)
{
	uint8x16_t turn[TURNS];
	const uint8_t(*power)[8][8] = key->turns[part] + GHASH_GROUP - group->filled;

	for (unsigned k = 0; k < TURNS; k++)
		turn[k] = vdupq_n_u8(0);
	for (size_t block = 0; block < group->filled; block++, power++) {
		poly8x16_t text = vreinterpretq_p8_u64(vld1q_dup_u64(&group->parts[part][block]));
#define TWO_TURNS(k)                                                                                                       \
	{                                                                                                                  \
		poly8x16_t two = vreinterpretq_p8_u8(vld1q_u8((*power)[k]));                                               \
		poly16x8_t low = vmull_p8(vget_low_p8(text), vget_low_p8(two));                                            \
		turn[k] = veorq_u8(turn[k], vreinterpretq_u8_p16(low));                                                    \
		turn[k + 1] = veorq_u8(turn[k + 1], vreinterpretq_u8_p16(vmull_high_p8(text, two)));                       \
	}
		TWO_TURNS(0)
		TWO_TURNS(2)
		TWO_TURNS(4)
		TWO_TURNS(6)
	}
	return put_together(turn);
}

/* A sum times y^57 + y^62 + y^63, of which the lower 64 bits. */
static inline uint64x1_t folded(uint64x1_t bits)
{
	return veor_u64(veor_u64(vshl_n_u64(bits, 57), vshl_n_u64(bits, 62)), vshl_n_u64(bits, 63));
}

/* The waiting blocks, with their powers of the key, become the hash. */
static void multiply(struct group *group, const struct ghash_key *key)
{
	uint64x2_t upper = products(group, key, UPPER);
	uint64x2_t lower = products(group, key, LOWER);
	uint64x2_t middle = veorq_u64(products(group, key, SUM), veorq_u64(upper, lower));
	uint64x1_t word[4] = {
		vget_low_u64(lower),
		veor_u64(vget_high_u64(lower), vget_low_u64(middle)),
		veor_u64(vget_low_u64(upper), vget_high_u64(middle)),
		vget_high_u64(upper),
	};

	/* The multiple of R that makes the lowest word zero is that word; then the next. */
	word[1] = veor_u64(word[1], folded(word[0]));
	word[2] = veor_u64(word[2], folded(word[1]));
	uint64x2_t out = vcombine_u64(word[0], word[1]);
	uint64x2_t sum = veorq_u64(out, vcombine_u64(word[2], word[3]));
	sum = veorq_u64(sum, vshrq_n_u64(out, 1));
	sum = veorq_u64(sum, vshrq_n_u64(out, 2));
	sum = veorq_u64(sum, vshrq_n_u64(out, 7));
	/* Upper half first, as blocks are read. */
	group->hash = vextq_u64(sum, sum, 1);
	group->filled = 0;
}

static inline void add(struct group *group, const struct ghash_key *key, uint8x16_t block)
{
	uint64x2_t halves = vreinterpretq_u64_u8(vrev64q_u8(block));
	uint64_t *parts = &group->parts[0][group->filled];

	if (group->filled == 0)
		halves = veorq_u64(halves, group->hash);
	vst1_u64(parts + UPPER * GHASH_GROUP, vget_low_u64(halves));
	vst1_u64(parts + LOWER * GHASH_GROUP, vget_high_u64(halves));
	vst1_u64(parts + SUM * GHASH_GROUP, veor_u64(vget_low_u64(halves), vget_high_u64(halves)));
	if (++group->filled == GHASH_GROUP)
		multiply(group, key);
}

/* Bytes, and zeros up to a whole block. */
static inline void add_bytes(struct group *group, const struct ghash_key *key, const uint8_t *bytes, size_t len)
{
	for (; len >= 16; bytes += 16, len -= 16)
		add(group, key, vld1q_u8(bytes));
	if (len != 0) {
		uint8_t last[16] = { 0 };
		memcpy(last, bytes, len);
		add(group, key, vld1q_u8(last));
	}
}

void millrace_ghash(const struct ghash_key *key, const uint8_t *aad, size_t aad_len, const uint8_t *text, size_t text_len,
		    uint8_t *hash)
{
	struct group group;
	group.filled = 0;
	group.hash = vdupq_n_u64(0);
	add_bytes(&group, key, aad, aad_len);
	add_bytes(&group, key, text, text_len);
	uint64x2_t bits = vcombine_u64(vcreate_u64((uint64_t)aad_len * 8), vcreate_u64((uint64_t)text_len * 8));
	add(&group, key, vrev64q_u8(vreinterpretq_u8_u64(bits)));
	if (group.filled != 0)
		multiply(&group, key);
	vst1q_u8(hash, vrev64q_u8(vreinterpretq_u8_u64(group.hash)));
}

/* The turns of a power of the key: its halves, upper first, times y. */
static void set_power(struct ghash_key *key, unsigned power, const uint64_t halves[2])
{
	uint64_t carry = -(halves[0] >> 63);
	uint64_t parts[3];

	parts[UPPER] = (halves[0] << 1 | halves[1] >> 63) ^ (carry & 0xc200000000000000);
	parts[LOWER] = halves[1] << 1 ^ (carry & 1);
	parts[SUM] = parts[UPPER] ^ parts[LOWER];
	for (unsigned part = 0; part < 3; part++)
		for (unsigned turn = 0; turn < TURNS; turn++) {
			uint64_t turned = parts[part] >> (8 * turn) | parts[part] << ((64 - 8 * turn) % 64);
			memcpy(key->turns[part][GHASH_GROUP - power][turn], &turned, sizeof turned);
		}
	millrace_erase(parts, sizeof parts);
}

void millrace_ghash_key(struct ghash_key *key, const uint8_t *h)
{
	struct group group;
	uint64_t halves[2];

	group.filled = 0;
	group.hash = vreinterpretq_u64_u8(vrev64q_u8(vld1q_u8(h)));
	for (unsigned power = 1;; power++) {
		vst1q_u64(halves, group.hash);
		set_power(key, power, halves);
		if (power == GHASH_GROUP)
			break;
		/* The power itself is the sum that a block of zeros is added to, times the key. */
		add(&group, key, vdupq_n_u8(0));
		multiply(&group, key);
	}
	millrace_erase(&group, sizeof group);
	millrace_erase(halves, sizeof halves);
}

#endif
