/* The bit-sliced AES core. */
#ifndef MILLRACE_AES_BITSLICED_H
#define MILLRACE_AES_BITSLICED_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A key as the core takes it: as `Keys` in aes_arm/bitsliced.rs has it. */
struct aes_keys {
	uint8_t bits[15 * 128] __attribute__((aligned(16)));
	uint32_t rounds;
};

/* Eight blocks from `in` to `out`, which may be the same; `out` on a multiple of 16. */
void millrace_aes_encrypt8(const uint8_t *keys, uint32_t rounds, const uint8_t *in, uint8_t *out);
void millrace_aes_decrypt8(const uint8_t *keys, uint32_t rounds, const uint8_t *in, uint8_t *out);

/* Fills with zeros what will not be read, which a compiler must not leave out. */
static inline void millrace_erase(void *memory, size_t len)
{
	__builtin_memset(memory, 0, len);
	__asm__ __volatile__("" : : "r"(memory) : "memory");
}

/* Less than 16 bytes. */
static inline void millrace_copy_part(uint8_t *to, const uint8_t *from, size_t len)
{
	if (len & 8) {
		vst1_u8(to, vld1_u8(from));
		to += 8;
		from += 8;
	}
	if (len & 4) {
		memcpy(to, from, 4);
		to += 4;
		from += 4;
	}
	if (len & 2) {
		memcpy(to, from, 2);
		to += 2;
		from += 2;
	}
	if (len & 1)
		*to = *from;
}

#endif
