/* AES in CBC mode, eight blocks at once, on the bit-sliced core (aes_bitsliced_arm.S, aes_bitsliced_aarch64.S).
 *
 * Encrypting, eight chains of different packets go side by side. A lane whose chain has ended takes the next one; when there is
 * none, the last lane takes its place, so that the lanes in use are always the first ones. Decrypting, no block waits for
 * another, and the blocks of all chains are worked off in groups of eight whatever their chain.
 */
#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "aes_bitsliced.h"

enum { LANES = 8, BLOCK = 16 };

/* Whole blocks, behind an initialisation vector. */
struct chain {
	uint8_t *at;
	size_t blocks;
};

struct lanes {
	uint8_t *at[LANES];
	size_t left[LANES];
	/* What each lane's next block is added to, and then the block itself. */
	uint8_t block[LANES * BLOCK] __attribute__((aligned(16)));
};

#ifndef __aarch64__
/* `steps` blocks of eight chains, in aes_bitsliced_arm.S. */
void millrace_aes_cbc8(const struct aes_keys *keys, uint8_t *blocks, uint8_t **at, size_t steps);
/* Backwards through eights of blocks, of which the last begin at `last`. */
void millrace_aes_cbc_back8(const struct aes_keys *keys, uint8_t *last, size_t eights);
#endif

/* `active` is a constant where all lanes are in use. */
static inline __attribute__((always_inline)) void run(struct lanes *lanes, const struct aes_keys *keys, size_t steps,
						      size_t active)
{
	do {
		for (size_t lane = 0; lane < active; lane++) {
			uint8_t *block = lanes->block + BLOCK * lane;
			vst1q_u8(block, veorq_u8(vld1q_u8(block), vld1q_u8(lanes->at[lane])));
		}
		millrace_aes_encrypt8(keys->bits, keys->rounds, lanes->block, lanes->block);
		for (size_t lane = 0; lane < active; lane++) {
			vst1q_u8(lanes->at[lane], vld1q_u8(lanes->block + BLOCK * lane));
			lanes->at[lane] += BLOCK;
		}
	} while (--steps != 0);
}

void millrace_aes_cbc_encrypt(const struct aes_keys *keys, const struct chain *chains, size_t count)
{
	struct lanes lanes;
	const struct chain *end = chains + count;
	size_t active = 0;

	memset(lanes.block, 0, sizeof lanes.block);
	for (;;) {
		for (size_t lane = 0; lane < LANES; lane++) {
			if (lane < active && lanes.left[lane] != 0)
				continue;
			while (chains != end && chains->blocks == 0)
				chains++;
			if (chains != end) {
				lanes.at[lane] = chains->at;
				lanes.left[lane] = chains->blocks;
				memcpy(lanes.block + BLOCK * lane, chains->at - BLOCK, BLOCK);
				chains++;
				if (lane >= active)
					active = lane + 1;
				continue;
			}
			if (lane >= active)
				break;
			/* The last lane comes here, and is looked at in its turn. */
			active--;
			if (lane != active) {
				lanes.at[lane] = lanes.at[active];
				lanes.left[lane] = lanes.left[active];
				memcpy(lanes.block + BLOCK * lane, lanes.block + BLOCK * active, BLOCK);
			}
			lane--;
		}
		if (active == 0)
			break;

		size_t steps = lanes.left[0];
		for (size_t lane = 1; lane < active; lane++)
			if (lanes.left[lane] < steps)
				steps = lanes.left[lane];
		if (active == LANES)
#ifdef __aarch64__
			run(&lanes, keys, steps, LANES);
#else
			millrace_aes_cbc8(keys, lanes.block, lanes.at, steps);
#endif
		else
			run(&lanes, keys, steps, active);
		for (size_t lane = 0; lane < active; lane++)
			lanes.left[lane] -= steps;
	}
	millrace_erase(lanes.block, sizeof lanes.block);
}

void millrace_aes_cbc_decrypt(const struct aes_keys *keys, const struct chain *chains, size_t count)
{
	uint8_t block[LANES * BLOCK] __attribute__((aligned(16)));
	uint8_t *at[LANES];
	const struct chain *end = chains + count;
	size_t filled = 0, left = 0;
	uint8_t *last = NULL;

	memset(block, 0, sizeof block);
	/* Each chain from its end, so that the block before is still as it was received. */
	for (;;) {
		while (left == 0 && chains != end) {
			left = chains->blocks;
			last = chains->at + BLOCK * left;
			chains++;
		}
		if (filled == 0 && left >= LANES) {
#ifndef __aarch64__
			size_t eights = left / LANES;
			millrace_aes_cbc_back8(keys, last - LANES * BLOCK, eights);
			last -= eights * LANES * BLOCK;
			left -= eights * LANES;
#else
			uint8_t *first = last - LANES * BLOCK;
			millrace_aes_decrypt8(keys->bits, keys->rounds, first, block);
			for (size_t lane = LANES; lane-- > 0;) {
				uint8x16_t before = vld1q_u8(first + BLOCK * lane - BLOCK);
				vst1q_u8(first + BLOCK * lane, veorq_u8(vld1q_u8(block + BLOCK * lane), before));
			}
			last = first;
			left -= LANES;
#endif
			continue;
		}
		if (left != 0) {
			last -= BLOCK;
			left--;
			at[filled] = last;
			vst1q_u8(block + BLOCK * filled, vld1q_u8(last));
			filled++;
		}
		if (filled == LANES || (filled != 0 && left == 0 && chains == end)) {
			millrace_aes_decrypt8(keys->bits, keys->rounds, block, block);
			for (size_t lane = 0; lane < filled; lane++) {
				uint8x16_t before = vld1q_u8(at[lane] - BLOCK);
				vst1q_u8(at[lane], veorq_u8(vld1q_u8(block + BLOCK * lane), before));
			}
			filled = 0;
		} else if (left == 0 && chains == end) {
			break;
		}
	}
	millrace_erase(block, sizeof block);
}
