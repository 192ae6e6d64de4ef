/*
 * What programs for routers leave out of AWS-LC: its table of a thousand object identifiers with their names, 55 kB of an
 * ARMv7 program. Those of its files that ask it include this before everything else, by the compiler of scripts/chips, and
 * the linker drops the table. They ask for ML-DSA, ML-KEM and rare identifiers of RSA, and for curves by name, which nothing
 * here does.
 */
#include <string.h>

#include <openssl/bytestring.h>
#include <openssl/obj.h>

/* NIST's algorithms are 2.16.840.1.101.3.4: signatures 3 below that, keys that are encapsulated 4. */
static inline int nid_of_identifier(const CBS *identifier)
{
    static const unsigned char nist[] = { 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04 };
    /* Other names of RSA keys: 2.5.8.1.1, and 1.2.840.113549.1.1.7. */
    static const unsigned char rsa[] = { 0x55, 0x08, 0x01, 0x01 };
    static const unsigned char oaep[] = { 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x07 };
    const unsigned char *bytes = CBS_data(identifier);

    if (CBS_mem_equal(identifier, rsa, sizeof rsa))
        return NID_rsa;
    if (CBS_mem_equal(identifier, oaep, sizeof oaep))
        return NID_rsaesOaep;
    if (CBS_len(identifier) != sizeof nist + 2 || memcmp(bytes, nist, sizeof nist) != 0)
        return NID_undef;
    switch (bytes[sizeof nist] << 8 | bytes[sizeof nist + 1]) {
    case 0x311:
        return NID_MLDSA44;
    case 0x312:
        return NID_MLDSA65;
    case 0x313:
        return NID_MLDSA87;
    case 0x401:
        return NID_MLKEM512;
    case 0x402:
        return NID_MLKEM768;
    case 0x403:
        return NID_MLKEM1024;
    default:
        return NID_undef;
    }
}

static inline int nid_of_name(const char *name)
{
    (void)name;
    return NID_undef;
}

#undef OBJ_cbs2nid
#undef OBJ_sn2nid
#undef OBJ_ln2nid
#define OBJ_cbs2nid nid_of_identifier
#define OBJ_sn2nid nid_of_name
#define OBJ_ln2nid nid_of_name
