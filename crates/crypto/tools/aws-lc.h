/*
 * What programs for routers leave out of AWS-LC, by the compiler of scripts/chips, which includes this before everything
 * else in the files that it is about. The linker then drops what nothing asks for any more.
 *
 * Its table of a thousand object identifiers with their names, 55 kB of an ARMv7 program. It is asked for ML-KEM, ML-DSA and
 * rare identifiers of RSA, and for curves by name, which nothing here does.
 *
 * ML-DSA, and ML-KEM in the sizes that no group of TLS is made of here. A certificate with a key of ML-DSA is refused before
 * its signature is looked at (crates/openvpn/src/verify/strength.rs). 34 kB of an ARMv7 program, 65 of an AArch64 one.
 *
 * Keys of ML-DSA, Diffie-Hellman and Ed25519ph, new groups for DSA, digests by name, which are all that MD4 and RIPEMD-160
 * are for, and Brainpool's curves: nothing here makes or takes them.
 *
 * On AArch64, the table of multiples of X25519's base point, with the code that adds them up: 60 kB. A public key is made as
 * shared secrets are, in constant time and by the same code, which is 0.1 ms longer on a router, once for each handshake.
 *
 * On AArch64, sscanf, of floating point too: what reads which instructions of the CPU are to be used (OPENSSL_armcap) is all
 * that it is for. 18 kB.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/bytestring.h>
#include <openssl/digest.h>
#include <openssl/dsa.h>
#include <openssl/ec.h>
#include <openssl/obj.h>

/* NIST's algorithms are 2.16.840.1.101.3.4, keys that are encapsulated 4 below that. */
static inline int nid_of_identifier(const CBS *identifier)
{
    static const unsigned char mlkem768[] = { 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x04, 0x02 };
    /* Other names of RSA keys: 2.5.8.1.1, and 1.2.840.113549.1.1.7. */
    static const unsigned char rsa[] = { 0x55, 0x08, 0x01, 0x01 };
    static const unsigned char oaep[] = { 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x07 };

    if (CBS_mem_equal(identifier, rsa, sizeof rsa))
        return NID_rsa;
    if (CBS_mem_equal(identifier, oaep, sizeof oaep))
        return NID_rsaesOaep;
    return CBS_mem_equal(identifier, mlkem768, sizeof mlkem768) ? NID_MLKEM768 : NID_undef;
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

/*
 * Each of these is a function without parameters, defined as NAME(void) and called as NAME(). Calls give nothing, as for an
 * identifier that is not known; what is defined has another name and no callers.
 */
#define KEM_ml_kem_512(parameters) KEM_ml_kem_512_##parameters
#define KEM_ml_kem_512_ NULL
#define KEM_ml_kem_512_void KEM_ml_kem_512_left_out(void)
#define KEM_ml_kem_1024(parameters) KEM_ml_kem_1024_##parameters
#define KEM_ml_kem_1024_ NULL
#define KEM_ml_kem_1024_void KEM_ml_kem_1024_left_out(void)
#define sig_ml_dsa_44(parameters) sig_ml_dsa_44_##parameters
#define sig_ml_dsa_44_ NULL
#define sig_ml_dsa_44_void sig_ml_dsa_44_left_out(void)
#define sig_ml_dsa_65(parameters) sig_ml_dsa_65_##parameters
#define sig_ml_dsa_65_ NULL
#define sig_ml_dsa_65_void sig_ml_dsa_65_left_out(void)
#define sig_ml_dsa_87(parameters) sig_ml_dsa_87_##parameters
#define sig_ml_dsa_87_ NULL
#define sig_ml_dsa_87_void sig_ml_dsa_87_left_out(void)

/* In the same way, but a call gives what is in the table of methods already. */
#undef EVP_PKEY_pqdsa_pkey_meth
#define EVP_PKEY_pqdsa_pkey_meth(parameters) EVP_PKEY_pqdsa_pkey_meth_##parameters
#define EVP_PKEY_pqdsa_pkey_meth_ EVP_PKEY_rsa_pkey_meth()
#define EVP_PKEY_pqdsa_pkey_meth_void EVP_PKEY_pqdsa_pkey_meth_left_out(void)
#undef EVP_PKEY_ed25519ph_pkey_meth
#define EVP_PKEY_ed25519ph_pkey_meth(parameters) EVP_PKEY_ed25519ph_pkey_meth_##parameters
#define EVP_PKEY_ed25519ph_pkey_meth_ EVP_PKEY_rsa_pkey_meth()
#define EVP_PKEY_ed25519ph_pkey_meth_void EVP_PKEY_ed25519ph_pkey_meth_left_out(void)

/* The other tables of methods, and that of curves. They are searched from the start: a second entry is never found. */
#undef dh_pkey_meth
#define dh_pkey_meth x25519_pkey_meth
#undef dh_asn1_meth
#define dh_asn1_meth rsa_asn1_meth
#undef ed25519ph_asn1_meth
#define ed25519ph_asn1_meth rsa_asn1_meth
#undef pqdsa_asn1_meth
#define pqdsa_asn1_meth rsa_asn1_meth
#undef EC_group_brainpoolP224r1
#define EC_group_brainpoolP224r1 EC_group_p256
#undef EC_group_brainpoolP256r1
#define EC_group_brainpoolP256r1 EC_group_p256
#undef EC_group_brainpoolP320r1
#define EC_group_brainpoolP320r1 EC_group_p256
#undef EC_group_brainpoolP384r1
#define EC_group_brainpoolP384r1 EC_group_p256
#undef EC_group_brainpoolP512r1
#define EC_group_brainpoolP512r1 EC_group_p256

static inline const EC_GROUP *group_of_curve(int nid)
{
    (void)nid;
    return NULL;
}

static inline const EVP_MD *digest_of_name(const char *name)
{
    (void)name;
    return NULL;
}

static inline int new_group(DSA *dsa, size_t bits, const EVP_MD *digest, const unsigned char *seed, size_t len,
                            int *counter, unsigned long *h, BN_GENCB *callback)
{
    (void)dsa, (void)bits, (void)digest, (void)seed, (void)len, (void)counter, (void)h, (void)callback;
    return 0;
}

#undef ec_group_new_by_curve_name_nonfips
#undef EVP_get_digestbyname
#undef dsa_internal_paramgen
#define ec_group_new_by_curve_name_nonfips group_of_curve
#define EVP_get_digestbyname digest_of_name
#define dsa_internal_paramgen new_group

#if defined(OPENSSL_AARCH64) && defined(OPENSSL_SMALL)
/* Two directories above one that is searched. */
#include <../../s2n-bignum_aws-lc.h>

static inline void x25519_of_base_point(uint8_t product[32], const uint8_t scalar[32])
{
    static const uint8_t base_point[32] = { 9 };

    curve25519_x25519_byte(product, scalar, base_point);
}

#define curve25519_x25519base_byte_selector x25519_of_base_point
#endif

#if defined(OPENSSL_AARCH64)
/* For "%x" and "%u" and a number of 32 bits. */
static inline int scan_number(const char *text, const char *format, uint32_t *number)
{
    char *end;

    *number = (uint32_t)strtoul(text, &end, format[1] == 'x' ? 16 : 10);
    return end != text;
}

#undef sscanf
#define sscanf scan_number
#endif
