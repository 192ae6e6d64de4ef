/* The bit-sliced AES core. */
#ifndef MILLRACE_AES_BITSLICED_H
#define MILLRACE_AES_BITSLICED_H

#include <stddef.h>
#include <stdint.h>

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

#endif
