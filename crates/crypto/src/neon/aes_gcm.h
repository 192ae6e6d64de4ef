/* Packets of AES-GCM, as `RawPacket` in aes_arm/gcm.rs has them. */
#ifndef MILLRACE_AES_GCM_H
#define MILLRACE_AES_GCM_H

#include <stddef.h>
#include <stdint.h>

struct gcm_packet {
	const uint8_t *aad;
	uint8_t *text;
	uint8_t *tag;
	size_t aad_len;
	size_t text_len;
	uint8_t nonce[12];
};

#endif
