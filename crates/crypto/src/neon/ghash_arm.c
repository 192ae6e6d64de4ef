/* GHASH (NIST SP 800-38D, section 6.4) on ARMv7's NEON, which multiplies eight bytes by eight bytes, in constant time.
 *
 * A block is read as a number of 128 bits, most significant byte first. Bit 127 - i stands for x^i, so that the numbers are the
 * polynomials backwards; with y^k for bit k the modulus is R = y^128 + y^127 + y^126 + y^121 + 1, and the product of blocks a and
 * b is a b y^-127 mod R. Keys are kept times y, which leaves a b' y^-128: one step of Montgomery's reduction, which is short
 * because R is 1 in its lowest 121 bits.
 *
 * Eight blocks go side by side: a register has the same byte of each. Karatsuba's method, four times one in the other down to single
 * bytes, makes a product of two blocks 81 products of bytes instead of 256: a block's 16 bytes become 81 sums of bytes, and so did
 * the powers of the key beforehand. All that follows the products is linear, so that it is done once for up to 96 blocks.
 */
#ifndef __aarch64__

#include <arm_neon.h>
#include <string.h>

#include "aes_bitsliced.h"
#include "ghash.h"

enum { BLOCK = 16, EIGHT = 8 * BLOCK, SUMS = GHASH_NINES * GHASH_SUMS };

/* In ghash_arm.S. */
void millrace_ghash_expand(const uint8_t *blocks, uint8_t *sums, size_t eights);
void millrace_ghash_products(const uint8_t *texts, const uint8_t *powers, size_t count, size_t skip, uint8_t *product);

/* What is hashed: each part is filled up with zeros to whole blocks. */
struct source {
	const uint8_t *at;
	size_t len;
	/* What comes after it. */
	const uint8_t *text;
	size_t text_len;
	/* Both lengths in bits. */
	uint8x16_t lengths;
};

static inline uint8x16_t next_block(struct source *source)
{
	if (source->len == 0) {
		if (source->text_len == 0)
			return source->lengths;
		source->at = source->text;
		source->len = source->text_len;
		source->text_len = 0;
	}
	if (source->len >= BLOCK) {
		uint8x16_t block = vld1q_u8(source->at);
		source->at += BLOCK;
		source->len -= BLOCK;
		return block;
	}
	uint8_t last[BLOCK] = { 0 };
	millrace_copy_part(last, source->at, source->len);
	source->len = 0;
	return vld1q_u8(last);
}

/* A sum times y^57 + y^62 + y^63, of which the lower 64 bits. */
static inline uint64x1_t folded(uint64x1_t bits)
{
	return veor_u64(veor_u64(vshl_n_u64(bits, 57), vshl_n_u64(bits, 62)), vshl_n_u64(bits, 63));
}

/* The sum of the blocks times their powers of the key, of which the last is the key itself. */
static inline uint8x16_t multiplied(const struct ghash_key *key, const uint8_t (*texts)[SUMS][8], size_t eights)
{
	uint8_t product[2 * BLOCK] __attribute__((aligned(16)));
	size_t skip = GHASH_EIGHTS - eights;

	millrace_ghash_products(texts[0][0], key->sums[0][skip][0], eights, skip * sizeof key->sums[0][0], product);
	uint64x2_t upper = vreinterpretq_u64_u8(vrev64q_u8(vld1q_u8(product)));
	uint64x2_t lower = vreinterpretq_u64_u8(vrev64q_u8(vld1q_u8(product + BLOCK)));
	/* The multiple of R that makes the lowest word zero is that word; then the next. */
	uint64x1_t lowest = vget_high_u64(lower);
	uint64x1_t next = veor_u64(vget_low_u64(lower), folded(lowest));
	uint64x2_t out = vcombine_u64(next, lowest);
	uint64x2_t sum = veorq_u64(upper, vcombine_u64(vdup_n_u64(0), folded(next)));
	sum = veorq_u64(sum, out);
	sum = veorq_u64(sum, vshrq_n_u64(out, 1));
	sum = veorq_u64(sum, vshrq_n_u64(out, 2));
	sum = veorq_u64(sum, vshrq_n_u64(out, 7));
	return vrev64q_u8(vreinterpretq_u8_u64(sum));
}

void millrace_ghash(const struct ghash_key *key, const uint8_t *aad, size_t aad_len, const uint8_t *text, size_t text_len,
		    uint8_t *hash)
{
	uint8_t texts[GHASH_EIGHTS][SUMS][8] __attribute__((aligned(16)));
	uint8_t blocks[8][BLOCK] __attribute__((aligned(16)));
	uint64x2_t bits = vcombine_u64(vcreate_u64((uint64_t)aad_len * 8), vcreate_u64((uint64_t)text_len * 8));
	struct source source = { aad, aad_len, text, text_len, vrev64q_u8(vreinterpretq_u8_u64(bits)) };
	size_t left = (aad_len + BLOCK - 1) / BLOCK + (text_len + BLOCK - 1) / BLOCK + 1;
	/* Zeros in front change nothing: with them it is eights. */
	size_t zeros = -left % 8;
	uint8x16_t sum = vdupq_n_u8(0);

	for (size_t eights = (left + zeros) / 8; eights != 0;) {
		/* The first are fewer, and then as many as there are powers. */
		size_t now = (eights - 1) % GHASH_EIGHTS + 1;
		for (size_t eight = 0; eight < now;) {
			size_t whole = source.len / EIGHT;
			if (whole > now - eight)
				whole = now - eight;
			if (whole != 0 && eight != 0) {
				millrace_ghash_expand(source.at, texts[eight][0], whole);
				source.at += whole * EIGHT;
				source.len -= whole * EIGHT;
				eight += whole;
				continue;
			}
			size_t block = 0;
			for (; zeros != 0; zeros--)
				vst1q_u8(blocks[block++], vdupq_n_u8(0));
			for (; block < 8; block++)
				vst1q_u8(blocks[block], next_block(&source));
			if (eight == 0)
				vst1q_u8(blocks[0], veorq_u8(vld1q_u8(blocks[0]), sum));
			millrace_ghash_expand(blocks[0], texts[eight][0], 1);
			eight++;
		}
		sum = multiplied(key, texts, now);
		eights -= now;
	}
	vst1q_u8(hash, sum);
	millrace_erase(blocks, sizeof blocks);
}

/* Sets eight powers of the key, the highest first. */
static void set_powers(struct ghash_key *key, size_t eight, const uint8_t *powers)
{
	uint8_t sums[GHASH_NINES][GHASH_SUMS][8];

	millrace_ghash_expand(powers, sums[0][0], 1);
	for (size_t nine = 0; nine < GHASH_NINES; nine++)
		memcpy(key->sums[nine][eight], sums[nine], sizeof sums[nine]);
	millrace_erase(sums, sizeof sums);
}

/* A block times y. */
static inline uint8x16_t times_y(uint8x16_t block)
{
	uint64x2_t halves = vreinterpretq_u64_u8(vrev64q_u8(block));
	uint64x2_t carries = vshrq_n_u64(halves, 63);
	uint64x2_t carry = vdupq_lane_u64(vsub_u64(vdup_n_u64(0), vget_low_u64(carries)), 0);
	uint64x2_t low = vcombine_u64(vget_high_u64(carries), vdup_n_u64(0));
	uint64x2_t modulus = vcombine_u64(vcreate_u64(0xc200000000000000), vcreate_u64(1));

	halves = vorrq_u64(vshlq_n_u64(halves, 1), low);
	return vrev64q_u8(vreinterpretq_u8_u64(veorq_u64(halves, vandq_u64(carry, modulus))));
}

void millrace_ghash_key(struct ghash_key *key, const uint8_t *h)
{
	uint8_t powers[GHASH_EIGHTS][8][BLOCK] __attribute__((aligned(16)));
	uint8_t texts[1][SUMS][8] __attribute__((aligned(16)));
	uint8_t block[8][BLOCK] __attribute__((aligned(16)));
	uint8x16_t power = vld1q_u8(h);

	memset(powers, 0, sizeof powers);
	memset(block, 0, sizeof block);
	for (size_t left = GHASH_EIGHTS * 8; left-- != 0;) {
		vst1q_u8(powers[left / 8][left % 8], times_y(power));
		/* The next is made with the first, which is set before the others. */
		if (left == GHASH_EIGHTS * 8 - 1)
			set_powers(key, GHASH_EIGHTS - 1, powers[GHASH_EIGHTS - 1][0]);
		vst1q_u8(block[7], power);
		millrace_ghash_expand(block[0], texts[0][0], 1);
		power = multiplied(key, texts, 1);
	}
	for (size_t eight = 0; eight < GHASH_EIGHTS; eight++)
		set_powers(key, eight, powers[eight][0]);
	millrace_erase(powers, sizeof powers);
	millrace_erase(texts, sizeof texts);
	millrace_erase(block, sizeof block);
}

#endif
