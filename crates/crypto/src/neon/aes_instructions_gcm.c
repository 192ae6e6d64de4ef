/* AES-GCM (NIST SP 800-38D) with the instructions of ARMv8, for batches of packets with nonces of 12 bytes.
 *
 * Eight counter blocks are encrypted at once, and the eight blocks of ciphertext, while they are in registers, are multiplied by
 * eight powers of the hash key before one reduction. The block that hides the tag goes with the last ones of its packet, fewer
 * than eight. Numbers are as in ghash.c.
 */
#ifdef __aarch64__

#include <string.h>

#include "aes_gcm.h"
#include "aes_instructions.h"

enum { LANES = 8, BLOCK = 16 };

/* As `GcmKey` in aes_arm/instructions.rs has it. */
struct instructions_gcm_key {
	struct round_keys aes;
	/* Powers of the hash key times y, the highest first, upper half first; and of each two the sums of their halves. */
	uint64_t powers[LANES][2] __attribute__((aligned(16)));
	uint64_t sums[LANES] __attribute__((aligned(16)));
};

/* What reduces the lowest word of a product: y^57 + y^62 + y^63. */
static const uint64_t fold = 0xc200000000000000;

INLINE uint64x2_t multiply_low(uint64x2_t one, uint64x2_t other)
{
	return vreinterpretq_u64_p128(vmull_p64(vgetq_lane_u64(one, 0), vgetq_lane_u64(other, 0)));
}

INLINE uint64x2_t multiply_high(uint64x2_t one, uint64x2_t other)
{
	return vreinterpretq_u64_p128(vmull_high_p64(vreinterpretq_p64_u64(one), vreinterpretq_p64_u64(other)));
}

INLINE uint64x2_t swapped(uint64x2_t halves)
{
	return vextq_u64(halves, halves, 1);
}

/* Sums of products: of the upper halves, of the lower ones, and of the sums of both. */
struct products {
	uint64x2_t upper, lower, middle;
};

/* One step of Montgomery's reduction, of what Karatsuba's method has left. */
INLINE uint64x2_t reduced(struct products products)
{
	uint64x2_t zero = vdupq_n_u64(0), folding = vdupq_n_u64(fold);
	uint64x2_t middle = veorq_u64(products.middle, veorq_u64(products.upper, products.lower));
	uint64x2_t lower = veorq_u64(products.lower, vextq_u64(zero, middle, 1));
	uint64x2_t upper = veorq_u64(products.upper, vextq_u64(middle, zero, 1));

	lower = veorq_u64(swapped(lower), multiply_low(lower, folding));
	upper = veorq_u64(upper, swapped(lower));
	return swapped(veorq_u64(upper, multiply_low(lower, folding)));
}

/* A block as two numbers of 64 bits, upper half first. */
INLINE uint64x2_t halves(uint8x16_t block)
{
	return vreinterpretq_u64_u8(vrev64q_u8(block));
}

/* Two blocks by two powers of the key; `first` for the first two. */
INLINE void multiply_two(struct products *products, const struct instructions_gcm_key *key, size_t power, uint64x2_t one,
			 uint64x2_t two, int first)
{
	uint64x2_t one_power = vld1q_u64(key->powers[power]), two_power = vld1q_u64(key->powers[power + 1]);
	uint64x2_t sums = veorq_u64(vtrn1q_u64(one, two), vtrn2q_u64(one, two));
	uint64x2_t power_sums = vld1q_u64(&key->sums[power]);
	uint64x2_t upper = multiply_low(one, one_power), lower = multiply_high(one, one_power);
	uint64x2_t middle = multiply_low(sums, power_sums);

	if (!first) {
		upper = veorq_u64(products->upper, upper);
		lower = veorq_u64(products->lower, lower);
		middle = veorq_u64(products->middle, middle);
	}
	products->upper = veorq_u64(upper, multiply_low(two, two_power));
	products->lower = veorq_u64(lower, multiply_high(two, two_power));
	products->middle = veorq_u64(middle, multiply_high(sums, power_sums));
}

/* One block by a power of the key: for what is no eight blocks. */
INLINE void multiply_one(struct products *products, const struct instructions_gcm_key *key, size_t power, uint64x2_t block)
{
	uint64x2_t one_power = vld1q_u64(key->powers[power]);
	uint64x2_t sum = veorq_u64(block, swapped(block));

	products->upper = veorq_u64(products->upper, multiply_low(block, one_power));
	products->lower = veorq_u64(products->lower, multiply_high(block, one_power));
	products->middle = veorq_u64(products->middle, multiply_low(sum, vdupq_n_u64(key->sums[power])));
}

/* Blocks, at most eight, go into the hash. */
INLINE uint64x2_t hashed(const struct instructions_gcm_key *key, uint64x2_t hash, const uint8_t *blocks, size_t count)
{
	struct products products = { vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0) };
	size_t power = LANES - count;

	for (size_t block = 0; block < count; block++, power++) {
		uint64x2_t number = halves(vld1q_u8(blocks + BLOCK * block));
		multiply_one(&products, key, power, block == 0 ? veorq_u64(number, hash) : number);
	}
	return reduced(products);
}

/* The counter of each lane: the block with its last word's bytes turned. */
#define COUNT(lane)                                                                                                        \
	uint8x16_t b##lane = vrev32q_u8(vreinterpretq_u8_u32(vaddq_u32(counter, vld1q_u32(lane_numbers[lane]))));

static const uint32_t lane_numbers[LANES + 1][4] __attribute__((aligned(16))) = {
	{ 0, 0, 0, 0 }, { 0, 0, 0, 1 }, { 0, 0, 0, 2 }, { 0, 0, 0, 3 }, { 0, 0, 0, 4 },
	{ 0, 0, 0, 5 }, { 0, 0, 0, 6 }, { 0, 0, 0, 7 }, { 0, 0, 0, 8 },
};

#define LOAD_TEXT(lane) uint8x16_t t##lane = vld1q_u8(text + BLOCK * lane);
#define ADD_STREAM(lane)                                                                                                   \
	b##lane = veorq_u8(veorq_u8(b##lane, after), vld1q_u8(text + BLOCK * lane));                                       \
	vst1q_u8(text + BLOCK * lane, b##lane);

#define HASH_EIGHT(block)                                                                                                  \
	multiply_two(&products, key, 0, veorq_u64(hash, halves(block##0)), halves(block##1), 1);                           \
	multiply_two(&products, key, 2, halves(block##2), halves(block##3), 0);                                            \
	multiply_two(&products, key, 4, halves(block##4), halves(block##5), 0);                                            \
	multiply_two(&products, key, 6, halves(block##6), halves(block##7), 0);

#define ONE(work) work(0)

INLINE uint8x16_t one_block(uint32_t rounds, const struct round_keys *keys, uint8x16_t b0)
{
	ENCRYPT(ONE, keys, rounds, after)
	return veorq_u8(b0, after);
}

/* Encrypts or decrypts a packet's text and says what its tag is. */
INLINE uint8x16_t crypt(uint32_t rounds, const struct instructions_gcm_key *key, const struct gcm_packet *packet, int seal)
{
	uint8_t *text = packet->text;
	size_t left = packet->text_len;
	const uint8_t *aad = packet->aad;
	uint8_t last[LANES * BLOCK] __attribute__((aligned(16)));
	uint64x2_t hash = vdupq_n_u64(0);
	uint8x16_t mask = vdupq_n_u8(0);

	memcpy(last, packet->nonce, sizeof packet->nonce);
	uint32x4_t counter = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(last)));
	counter = vsetq_lane_u32(2, counter, 3);

	for (size_t aad_left = packet->aad_len; aad_left != 0;) {
		size_t some = aad_left < sizeof last ? aad_left : sizeof last;
		vst1q_u8(last + (some - 1) / BLOCK * BLOCK, vdupq_n_u8(0));
		memcpy(last, aad, some);
		hash = hashed(key, hash, last, (some + BLOCK - 1) / BLOCK);
		aad += some;
		aad_left -= some;
	}

	for (; left >= LANES * BLOCK; left -= LANES * BLOCK, text += LANES * BLOCK) {
		struct products products;
		if (!seal) {
			EIGHT(LOAD_TEXT)
			HASH_EIGHT(t)
			hash = reduced(products);
		}
		EIGHT(COUNT)
		counter = vaddq_u32(counter, vld1q_u32(lane_numbers[LANES]));
		ENCRYPT(EIGHT, &key->aes, rounds, after)
		EIGHT(ADD_STREAM)
		if (seal) {
			HASH_EIGHT(b)
			hash = reduced(products);
		}
	}

	size_t blocks = (left + BLOCK - 1) / BLOCK;
	uint32x4_t first = vsetq_lane_u32(1, counter, 3);
	if (blocks != 0) {
		memset(last, 0, sizeof last);
		memcpy(last, text, left);
		if (!seal)
			hash = hashed(key, hash, last, blocks);
		EIGHT(COUNT)
		if (blocks != LANES)
			b7 = vrev32q_u8(vreinterpretq_u8_u32(first));
		ENCRYPT(EIGHT, &key->aes, rounds, after)
		mask = veorq_u8(b7, after);
		uint8_t *end = text;
		text = last;
		EIGHT(ADD_STREAM)
		memcpy(end, last, left);
		if (seal) {
			memset(last + left, 0, BLOCK * blocks - left);
			hash = hashed(key, hash, last, blocks);
		}
		millrace_erase(last, sizeof last);
	}
	if (blocks % LANES == 0)
		mask = one_block(rounds, &key->aes, vrev32q_u8(vreinterpretq_u8_u32(first)));

	struct products products = { vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0) };
	uint64x2_t bits = vcombine_u64(vcreate_u64((uint64_t)packet->aad_len * 8), vcreate_u64((uint64_t)packet->text_len * 8));
	multiply_one(&products, key, LANES - 1, veorq_u64(hash, bits));
	return veorq_u8(mask, vrev64q_u8(vreinterpretq_u8_u64(reduced(products))));
}

INLINE int seal(uint32_t rounds, const struct instructions_gcm_key *key, const struct gcm_packet *packets, size_t count)
{
	for (; count != 0; packets++, count--)
		vst1q_u8(packets->tag, crypt(rounds, key, packets, 1));
	return 0;
}

INLINE int open(uint32_t rounds, const struct instructions_gcm_key *key, const struct gcm_packet *packets, size_t count,
		uint8_t *authentic)
{
	for (; count != 0; packets++, authentic++, count--) {
		uint8x16_t tag = vld1q_u8(packets->tag);
		uint64x2_t wrong = vreinterpretq_u64_u8(veorq_u8(tag, crypt(rounds, key, packets, 0)));
		*authentic = (vgetq_lane_u64(wrong, 0) | vgetq_lane_u64(wrong, 1)) == 0;
		if (!*authentic)
			memset(packets->text, 0, packets->text_len);
	}
	return 0;
}

WITH_AES void millrace_aes_instructions_gcm_seal(const struct instructions_gcm_key *key, const struct gcm_packet *packets, size_t count)
{
	WITH_ROUNDS(key->aes.rounds, seal, key, packets, count);
}

WITH_AES void millrace_aes_instructions_gcm_open(const struct instructions_gcm_key *key, const struct gcm_packet *packets, size_t count,
					 uint8_t *authentic)
{
	WITH_ROUNDS(key->aes.rounds, open, key, packets, count, authentic);
}

/* The powers of the hash key, when the cipher's keys are set. */
WITH_AES void millrace_aes_instructions_gcm_key(struct instructions_gcm_key *key)
{
	uint64x2_t power = halves(WITH_ROUNDS(key->aes.rounds, one_block, &key->aes, vdupq_n_u8(0)));

	for (size_t at = LANES; at-- > 0;) {
		uint64_t upper = vgetq_lane_u64(power, 0), lower = vgetq_lane_u64(power, 1);
		uint64_t carry = -(upper >> 63);
		key->powers[at][0] = (upper << 1 | lower >> 63) ^ (carry & fold);
		key->powers[at][1] = lower << 1 ^ (carry & 1);
		key->sums[at] = key->powers[at][0] ^ key->powers[at][1];
		struct products products = { vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0) };
		multiply_one(&products, key, LANES - 1, power);
		power = reduced(products);
	}
}

#endif
