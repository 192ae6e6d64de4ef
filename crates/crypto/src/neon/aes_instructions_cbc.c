/* AES in CBC mode with the instructions of ARMv8.
 *
 * Encrypting, a block waits for the one before it, and a round takes longer than it takes to begin one: eight chains of different
 * packets go side by side. A lane whose chain has ended takes the next one; when there is none, the last lane takes its place.
 * Decrypting, blocks of a chain go side by side.
 */
#ifdef __aarch64__

#include "aes_instructions.h"

enum { LANES = 8, BLOCK = 16 };

/* Whole blocks, behind an initialisation vector. */
struct chain {
	uint8_t *at;
	size_t blocks;
};

#define ONE(work) work(0)
#define FETCH(lane)                                                                                                        \
	uint8_t *at##lane = chains[lane].at;                                                                               \
	uint8x16_t b##lane = vld1q_u8(at##lane - BLOCK);
#define ADD_TEXT(lane) b##lane = veorq_u8(b##lane, vld1q_u8(at##lane));
#define STORE(lane)                                                                                                        \
	b##lane = veorq_u8(b##lane, after);                                                                                \
	vst1q_u8(at##lane, b##lane);                                                                                       \
	at##lane += BLOCK;
#define KEEP(lane) chains[lane].at = at##lane;

/* So many blocks of each of the first chains. What a block is added to stands in front of it in the memory. */
#define RUN(name, lanes)                                                                                                   \
	INLINE int name(uint32_t rounds, const struct round_keys *keys, struct chain *chains, size_t steps)                \
	{                                                                                                                  \
		lanes(FETCH)                                                                                               \
		do {                                                                                                       \
			lanes(ADD_TEXT)                                                                                    \
			ENCRYPT(lanes, keys, rounds, after)                                                                \
			lanes(STORE)                                                                                       \
		} while (--steps != 0);                                                                                    \
		lanes(KEEP)                                                                                                \
		return 0;                                                                                                  \
	}
RUN(run_one, ONE)
RUN(run_four, FOUR)
RUN(run_eight, EIGHT)

WITH_AES void millrace_aes_instructions_cbc_encrypt(const struct round_keys *keys, const struct chain *chains, size_t count)
{
	struct chain lanes[LANES];
	const struct chain *end = chains + count;
	size_t active = 0;

	for (;;) {
		for (size_t lane = 0; lane < LANES; lane++) {
			if (lane < active && lanes[lane].blocks != 0)
				continue;
			while (chains != end && chains->blocks == 0)
				chains++;
			if (chains != end) {
				lanes[lane] = *chains++;
				if (lane >= active)
					active = lane + 1;
				continue;
			}
			if (lane >= active)
				break;
			/* The last lane comes here, and is looked at in its turn. */
			lanes[lane--] = lanes[--active];
		}
		if (active == 0)
			break;

		size_t steps = lanes[0].blocks;
		for (size_t lane = 1; lane < active; lane++)
			if (lanes[lane].blocks < steps)
				steps = lanes[lane].blocks;
		size_t lane = 0;
		if (active == LANES) {
			WITH_ROUNDS(keys->rounds, run_eight, keys, lanes, steps);
			lane = LANES;
		} else if (active >= 4) {
			WITH_ROUNDS(keys->rounds, run_four, keys, lanes, steps);
			lane = 4;
		}
		for (; lane < active; lane++)
			WITH_ROUNDS(keys->rounds, run_one, keys, lanes + lane, steps);
		for (lane = 0; lane < active; lane++)
			lanes[lane].blocks -= steps;
	}
}

#define BACK_ROUND(lane) b##lane = vaesimcq_u8(vaesdq_u8(b##lane, key));
#define BACK_LAST_ROUND(lane) b##lane = vaesdq_u8(b##lane, key);
#define LOAD(lane) uint8x16_t b##lane = vld1q_u8(last - BLOCK * (1 + lane));
#define STORE_BACK(lane)                                                                                                   \
	vst1q_u8(last - BLOCK * (1 + lane),                                                                                \
		 veorq_u8(veorq_u8(b##lane, after), vld1q_u8(last - BLOCK * (2 + lane))));

/* The last blocks of a chain: what each is added to, the block before, is still as it was received. */
#define RUN_BACK(name, lanes)                                                                                              \
	INLINE int name(uint32_t rounds, const struct round_keys *keys, uint8_t *last)                                     \
	{                                                                                                                  \
		uint8x16_t key, after = vld1q_u8(keys->keys[rounds]);                                                      \
		lanes(LOAD)                                                                                                \
		_Pragma("GCC unroll 14") for (uint32_t round = 0; round < rounds - 1; round++)                             \
		{                                                                                                          \
			key = vld1q_u8(keys->keys[round]);                                                                 \
			lanes(BACK_ROUND)                                                                                  \
		}                                                                                                          \
		key = vld1q_u8(keys->keys[rounds - 1]);                                                                    \
		lanes(BACK_LAST_ROUND)                                                                                     \
		lanes(STORE_BACK)                                                                                          \
		return 0;                                                                                                  \
	}
RUN_BACK(back_one, ONE)
RUN_BACK(back_four, FOUR)
RUN_BACK(back_eight, EIGHT)

INLINE int back(uint32_t rounds, const struct round_keys *keys, const struct chain *chain)
{
	uint8_t *last = chain->at + BLOCK * chain->blocks;
	size_t left = chain->blocks;
	for (; left >= 8; left -= 8, last -= 8 * BLOCK)
		back_eight(rounds, keys, last);
	if (left >= 4) {
		back_four(rounds, keys, last);
		left -= 4;
		last -= 4 * BLOCK;
	}
	for (; left != 0; left--, last -= BLOCK)
		back_one(rounds, keys, last);
	return 0;
}

/* With the keys of millrace_aes_instructions_invert. */
WITH_AES void millrace_aes_instructions_cbc_decrypt(const struct round_keys *keys, const struct chain *chains, size_t count)
{
	for (; count != 0; chains++, count--)
		WITH_ROUNDS(keys->rounds, back, keys, chains);
}

/* The keys of the equivalent inverse cipher (FIPS 197, section 5.3.5). */
WITH_AES void millrace_aes_instructions_invert(const struct round_keys *keys, struct round_keys *inverse)
{
	inverse->rounds = keys->rounds;
	for (uint32_t round = 0; round <= keys->rounds; round++) {
		uint8x16_t key = vld1q_u8(keys->keys[keys->rounds - round]);
		if (round != 0 && round != keys->rounds)
			key = vaesimcq_u8(key);
		vst1q_u8(inverse->keys[round], key);
	}
}

#endif
