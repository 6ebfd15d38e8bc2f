/* hash.c: a 64-bit hash of a byte stream against damage, not against forgery.
 *
 * Eight lanes each take every eighth word: lane = (lane ^ word) * odd, then a right shift is
 * folded in. Each step is a bijection of lane and word, so one damaged word always changes its lane;
 * the lanes do not wait for each other, so the hash runs at about the speed of memory. */
#include "internal.h"

#include <string.h>

#define STEP 0x9E3779B97F4A7C15u        /* 2^64 divided by the golden ratio, odd */

static inline uint64_t mix(uint64_t lane, uint64_t word) {
    lane = (lane ^ word) * STEP;
    return lane ^ lane >> 32;
}

static void feed_blocks(uint64_t lanes[8], const uint8_t *bytes, size_t blocks) {
    uint64_t lane[8], word[8];
    memcpy(lane, lanes, sizeof lane);
    for (; blocks; blocks--, bytes += sizeof word) {
        memcpy(word, bytes, sizeof word);
        for (int i = 0; i < 8; i++) lane[i] = mix(lane[i], word[i]);
    }
    memcpy(lanes, lane, sizeof lane);
}

void tw_hash_feed(tw_hash *hash, const void *data, size_t size) {
    const uint8_t *bytes = data;
    size_t kept = hash->total % 64;
    hash->total += size;
    if (kept) {
        size_t taken = size < 64 - kept ? size : 64 - kept;
        memcpy(hash->rest + kept, bytes, taken);
        bytes += taken;
        size -= taken;
        if (kept + taken < 64) return;
        feed_blocks(hash->lane, hash->rest, 1);
    }
    feed_blocks(hash->lane, bytes, size / 64);
    if (size % 64) memcpy(hash->rest, bytes + size / 64 * 64, size % 64);
}

uint64_t tw_hash_finish(tw_hash *hash) {
    size_t kept = hash->total % 64;
    if (kept) {
        memset(hash->rest + kept, 0, 64 - kept);
        feed_blocks(hash->lane, hash->rest, 1);
    }
    uint64_t result = mix(STEP, hash->total);
    for (int i = 0; i < 8; i++) result = mix(result, hash->lane[i] + (uint64_t)i);
    return mix(result, result >> 29);
}
