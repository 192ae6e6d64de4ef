/* Counter blocks of a packet, of which the first rounds are done once: aes_ctr_arm.S. */
#ifndef MILLRACE_AES_CTR_H
#define MILLRACE_AES_CTR_H

#include "aes_bitsliced.h"

/* Counters from 1 for which that is done: a packet of up to 1,520 bytes. */
enum { CTR_EIGHTS = 12, CTR_FOURS = CTR_EIGHTS / 4 };

/* What each of them adds to the first round, for four times eight: as `Counters` in aes_arm/counters.rs has it. */
struct ctr_counters {
	uint8_t bits[CTR_FOURS][128] __attribute__((aligned(16)));
};

/* What the blocks of a packet have in common. */
struct ctr_packet {
	uint8_t first[128] __attribute__((aligned(16)));
	uint8_t second[128];
};

void millrace_aes_ctr_start(const struct aes_keys *keys, const uint8_t *nonces, uint8_t *firsts, uint8_t *seconds);
void millrace_aes_ctr_packet(const uint8_t *firsts, const uint8_t *seconds, uint32_t mask, struct ctr_packet *packet);
void millrace_aes_ctr_second(const uint8_t *counters, const struct ctr_packet *packet, uint8_t *times);
void millrace_aes_ctr8(const struct aes_keys *keys, const uint8_t *second, const uint8_t *times, uint8_t *text, size_t eights);

#endif
