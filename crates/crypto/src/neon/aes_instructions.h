/* AES with the instructions of ARMv8, on AArch64. */
#ifndef MILLRACE_AES_INSTRUCTIONS_H
#define MILLRACE_AES_INSTRUCTIONS_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

#include "aes_bitsliced.h"

#ifdef __clang__
#define WITH_AES __attribute__((target("aes")))
#else
#define WITH_AES __attribute__((target("+crypto")))
#endif

/* As `RoundKeys` in aes_arm/instructions.rs has it. */
struct round_keys {
	uint8_t keys[15][16] __attribute__((aligned(16)));
	uint32_t rounds;
};

/* `work` with every lane's number. */
#define FOUR(work) work(0) work(1) work(2) work(3)
#define EIGHT(work) FOUR(work) work(4) work(5) work(6) work(7)

/* Rounds on the blocks b0, b1 and so on, which `lanes` goes through; the last key, `after`, is left to be added. */
#define ROUND(lane) b##lane = vaesmcq_u8(vaeseq_u8(b##lane, round_key));
#define LAST_ROUND(lane) b##lane = vaeseq_u8(b##lane, round_key);
#define ENCRYPT(lanes, round_keys, rounds, after)                                                                          \
	uint8x16_t after = vld1q_u8((round_keys)->keys[rounds]);                                                           \
	{                                                                                                                  \
		_Pragma("GCC unroll 14") for (uint32_t round = 0; round < (rounds) - 1; round++)                           \
		{                                                                                                          \
			uint8x16_t round_key = vld1q_u8((round_keys)->keys[round]);                                              \
			lanes(ROUND)                                                                                       \
		}                                                                                                          \
		uint8x16_t round_key = vld1q_u8((round_keys)->keys[(rounds) - 1]);                                               \
		lanes(LAST_ROUND)                                                                                          \
	}

/* Calls `function` with the number of rounds as a constant in front of the other arguments. */
#define WITH_ROUNDS(number, function, ...)                                                                                 \
	((number) == 10 ? function(10, __VA_ARGS__) : (number) == 12 ? function(12, __VA_ARGS__) : function(14, __VA_ARGS__))

#define INLINE static inline __attribute__((always_inline)) WITH_AES

#endif
