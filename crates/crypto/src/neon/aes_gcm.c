/* AES-GCM (NIST SP 800-38D) for batches of packets, on the bit-sliced core, with nonces of 12 bytes.
 *
 * The counter blocks of all packets are one stream, of which eight are encrypted at once: no packet's tail, and no small
 * packet, leaves lanes empty. The first block of each packet hides its tag.
 *
 * On ARMv7 the whole eights of a long packet's blocks are not in this stream, as their first rounds are done once (aes_ctr_arm.S).
 */
#include <arm_neon.h>
#include <string.h>

#include "aes_bitsliced.h"
#ifndef __aarch64__
#include "aes_ctr.h"
#endif
#include "aes_gcm.h"
#include "ghash.h"

enum { LANES = 8, BLOCK = 16 };

/* Packets that go through all of it together: few enough to stay in a first cache of 32 KB. */
enum { TOGETHER = 16 };

/* As `Key` in aes_arm/gcm.rs has it. */
struct gcm_key {
	struct aes_keys aes;
	struct ghash_key ghash;
#ifndef __aarch64__
	struct ctr_counters counters;
#endif
};

/* Counter blocks that wait for the lanes to be full, and what each is added to. */
struct stream {
	uint8_t counters[LANES * BLOCK] __attribute__((aligned(16)));
	uint8_t key_stream[LANES * BLOCK] __attribute__((aligned(16)));
	/* The end of a text, less than a block, while the key stream is added to it. */
	uint8_t end[BLOCK] __attribute__((aligned(16)));
	uint8_t *at[LANES];
	uint8_t len[LANES];
	size_t filled;
};

static void flush(struct stream *stream, const struct aes_keys *keys)
{
	millrace_aes_encrypt8(keys->bits, keys->rounds, stream->counters, stream->key_stream);
	for (size_t lane = 0; lane < stream->filled; lane++) {
		uint8_t *at = stream->at[lane];
		uint8x16_t mask = vld1q_u8(stream->key_stream + BLOCK * lane);
		if (stream->len[lane] == BLOCK) {
			vst1q_u8(at, veorq_u8(vld1q_u8(at), mask));
		} else {
			millrace_copy_part(stream->end, at, stream->len[lane]);
			vst1q_u8(stream->end, veorq_u8(vld1q_u8(stream->end), mask));
			millrace_copy_part(at, stream->end, stream->len[lane]);
		}
	}
	stream->filled = 0;
}

static inline uint8x16_t counter_block(uint8x16_t nonce, uint32_t counter)
{
	return vreinterpretq_u8_u32(vsetq_lane_u32(__builtin_bswap32(counter), vreinterpretq_u32_u8(nonce), 3));
}

/* Adds the key stream of a block to `len` bytes, when the lanes are full. */
static inline void push(struct stream *stream, const struct aes_keys *keys, uint8x16_t block, uint8_t *at, size_t len)
{
	vst1q_u8(stream->counters + BLOCK * stream->filled, block);
	stream->at[stream->filled] = at;
	stream->len[stream->filled] = len;
	if (++stream->filled == LANES)
		flush(stream, keys);
}

/* The first counter block but for its counter. */
static inline uint8x16_t nonce_of(const struct gcm_packet *packet)
{
	uint8_t bytes[BLOCK] = { 0 };
	memcpy(bytes, packet->nonce, sizeof packet->nonce);
	return vld1q_u8(bytes);
}

/* Adds the key stream to what of a packet's text is behind the first blocks of the key stream. */
static void crypt(struct stream *stream, const struct aes_keys *keys, const struct gcm_packet *packet, size_t blocks,
		  uint8_t *mask)
{
	uint8_t *text = packet->text;
	size_t left = packet->text_len;
	uint32_t counter = 1 + blocks;
	uint8x16_t nonce = nonce_of(packet);

	if (blocks == 0) {
		push(stream, keys, counter_block(nonce, counter++), mask, BLOCK);
	} else {
		text += (blocks - 1) * BLOCK;
		left -= (blocks - 1) * BLOCK;
	}
	while (left != 0) {
		if (stream->filled == 0 && left >= LANES * BLOCK) {
			for (size_t lane = 0; lane < LANES; lane++)
				vst1q_u8(stream->counters + BLOCK * lane, nonce);
			do {
				for (size_t lane = 0; lane < LANES; lane++) {
					uint32_t big = __builtin_bswap32(counter + lane);
					memcpy(stream->counters + BLOCK * lane + 12, &big, 4);
				}
				counter += LANES;
				millrace_aes_encrypt8(keys->bits, keys->rounds, stream->counters, stream->key_stream);
				for (size_t lane = 0; lane < LANES; lane++, text += BLOCK)
					vst1q_u8(text, veorq_u8(vld1q_u8(text),
								vld1q_u8(stream->key_stream + BLOCK * lane)));
				left -= LANES * BLOCK;
			} while (left >= LANES * BLOCK);
			continue;
		}
		size_t len = left < BLOCK ? left : BLOCK;
		push(stream, keys, counter_block(nonce, counter++), text, len);
		text += len;
		left -= len;
	}
}

#ifndef __aarch64__

/* Eights of blocks, the one that hides the tag among them, from which on it pays to do the first rounds once. */
enum { LONG = 4 };

static inline size_t eights_of(const struct gcm_packet *packet)
{
	size_t eights = (packet->text_len / BLOCK + 1) / LANES;
	return eights < CTR_EIGHTS ? eights : CTR_EIGHTS;
}

/* What long packets have while the key stream is added to them. */
struct long_packet {
	struct ctr_packet common;
	/* For each of four eights 12 bytes of each bit, and four more that are read. */
	uint8_t times[8 * 48 + 4] __attribute__((aligned(16)));
	/* The tag's mask, and the text's first blocks. */
	uint8_t first[LANES][BLOCK] __attribute__((aligned(16)));
};

/* Adds whole eights of blocks. */
static void crypt_long(const struct gcm_key *key, const struct gcm_packet *packet, struct long_packet *state, uint8_t *mask)
{
	const uint8_t *second = state->common.second;
	uint8_t *text = packet->text;
	size_t left = eights_of(packet);

	vst1q_u8(state->first[0], vdupq_n_u8(0));
	for (size_t lane = 1; lane < LANES; lane++)
		vst1q_u8(state->first[lane], vld1q_u8(text + BLOCK * (lane - 1)));
	millrace_aes_ctr_second(key->counters.bits[0], &state->common, state->times);
	millrace_aes_ctr8(&key->aes, second, state->times, state->first[0], 1);
	vst1q_u8(mask, vld1q_u8(state->first[0]));
	for (size_t lane = 1; lane < LANES; lane++, text += BLOCK)
		vst1q_u8(text, vld1q_u8(state->first[lane]));
	millrace_aes_ctr8(&key->aes, second, state->times + 12, text, 3);
	text += 3 * LANES * BLOCK;
	left -= 4;
	for (size_t four = 1; left != 0; four++) {
		size_t now = left < 4 ? left : 4;
		millrace_aes_ctr_second(key->counters.bits[four], &state->common, state->times);
		millrace_aes_ctr8(&key->aes, second, state->times, text, now);
		text += now * LANES * BLOCK;
		left -= now;
	}
}

/* All long packets' whole eights. */
static void crypt_all_long(const struct gcm_key *key, const struct gcm_packet *packets, size_t count, uint8_t (*masks)[BLOCK])
{
	uint8_t nonces[LANES][BLOCK] __attribute__((aligned(16)));
	struct ctr_packet eight;
	struct long_packet state;
	size_t which[TOGETHER], found = 0;

	for (size_t packet = 0; packet < count; packet++)
		if (eights_of(&packets[packet]) >= LONG)
			which[found++] = packet;
	if (found == 0)
		return;
	memset(nonces, 0, sizeof nonces);
	memset(state.times, 0, sizeof state.times);
	for (size_t at = 0; at < found; at++) {
		size_t lane = at % LANES;
		if (lane == 0) {
			for (size_t other = 0; other < LANES && at + other < found; other++)
				vst1q_u8(nonces[other], nonce_of(&packets[which[at + other]]));
			millrace_aes_ctr_start(&key->aes, nonces[0], eight.first, eight.second);
		}
		millrace_aes_ctr_packet(eight.first, eight.second, 0x80 >> lane, &state.common);
		crypt_long(key, &packets[which[at]], &state, masks[which[at]]);
	}
	millrace_erase(&eight, sizeof eight);
	millrace_erase(&state, sizeof state);
}

#endif

static void crypt_all(const struct gcm_key *key, const struct gcm_packet *packets, size_t count, uint8_t (*masks)[BLOCK])
{
	struct stream stream;
	memset(masks, 0, count * BLOCK);
	memset(stream.end, 0, sizeof stream.end);
	stream.filled = 0;
#ifndef __aarch64__
	crypt_all_long(key, packets, count, masks);
#endif
	for (size_t packet = 0; packet < count; packet++) {
		size_t blocks = 0;
#ifndef __aarch64__
		if (eights_of(&packets[packet]) >= LONG)
			blocks = eights_of(&packets[packet]) * LANES;
#endif
		crypt(&stream, &key->aes, &packets[packet], blocks, masks[packet]);
	}
	if (stream.filled != 0) {
		memset(stream.counters + BLOCK * stream.filled, 0, BLOCK * (LANES - stream.filled));
		flush(&stream, &key->aes);
	}
	millrace_erase(stream.key_stream, sizeof stream.key_stream);
	millrace_erase(stream.end, sizeof stream.end);
}

/* The tag of a packet whose text is encrypted. */
static inline uint8x16_t tag_of(const struct gcm_key *key, const struct gcm_packet *packet, const uint8_t *mask)
{
	uint8_t hash[BLOCK];
	millrace_ghash(&key->ghash, packet->aad, packet->aad_len, packet->text, packet->text_len, hash);
	uint8x16_t tag = veorq_u8(vld1q_u8(hash), vld1q_u8(mask));
	millrace_erase(hash, sizeof hash);
	return tag;
}

void millrace_gcm_seal(const struct gcm_key *key, const struct gcm_packet *packets, size_t count)
{
	uint8_t masks[TOGETHER][BLOCK] __attribute__((aligned(16)));
	while (count != 0) {
		size_t some = count < TOGETHER ? count : TOGETHER;
		crypt_all(key, packets, some, masks);
		for (size_t packet = 0; packet < some; packet++)
			vst1q_u8(packets[packet].tag, tag_of(key, &packets[packet], masks[packet]));
		packets += some;
		count -= some;
	}
	millrace_erase(masks, sizeof masks);
}

void millrace_gcm_open(const struct gcm_key *key, const struct gcm_packet *packets, size_t count, uint8_t *authentic)
{
	uint8_t masks[TOGETHER][BLOCK] __attribute__((aligned(16)));
	uint8_t hashes[TOGETHER][BLOCK] __attribute__((aligned(16)));
	static const uint8_t nothing[BLOCK];
	while (count != 0) {
		size_t some = count < TOGETHER ? count : TOGETHER;
		for (size_t packet = 0; packet < some; packet++)
			vst1q_u8(hashes[packet], tag_of(key, &packets[packet], nothing));
		crypt_all(key, packets, some, masks);
		for (size_t packet = 0; packet < some; packet++) {
			uint8x16_t tag = veorq_u8(vld1q_u8(hashes[packet]), vld1q_u8(masks[packet]));
			uint64x2_t wrong = vreinterpretq_u64_u8(veorq_u8(tag, vld1q_u8(packets[packet].tag)));
			authentic[packet] = (vgetq_lane_u64(wrong, 0) | vgetq_lane_u64(wrong, 1)) == 0;
			if (!authentic[packet])
				memset(packets[packet].text, 0, packets[packet].text_len);
		}
		packets += some;
		authentic += some;
		count -= some;
	}
	millrace_erase(masks, sizeof masks);
	millrace_erase(hashes, sizeof hashes);
}

/* The hash key from the cipher's, which is set already. */
void millrace_gcm_key(struct gcm_key *key)
{
	uint8_t block[LANES * BLOCK] __attribute__((aligned(16))) = { 0 };
	millrace_aes_encrypt8(key->aes.bits, key->aes.rounds, block, block);
	millrace_ghash_key(&key->ghash, block);
	millrace_erase(block, sizeof block);
}
