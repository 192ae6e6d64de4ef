/* A plug-in for qemu that counts instructions: of marked regions in a program (qemu-user), or of a whole machine
 * with its kernel (qemu-system).
 *
 * In qemu-user the guest marks with getpriority(MAGIC, id), which fails without doing anything: an even id begins a region, the
 * next odd one ends it. For each region one line comes out: "count <id> <instructions> <of which SIMD and FP>", with
 * the even id, on standard error. What is counted is every instruction that one thread executes between the two
 * calls; whole translation blocks at a time, so that a region should be long beside a block.
 *
 * For a machine, `counts=PATH` names a file of two 64-bit numbers that are kept up to date while it runs: instructions
 * in user mode, and in the kernel. A processor that waits executes none. The guest must be 32-bit ARM with one
 * processor, whose kernel is in the upper gigabyte and 16 MB below, as Debian's is. With `profile=PATH`, instructions of each block
 * since SIGUSR1 came last are written there at the next SIGUSR1: "ADDRESS INSTRUCTIONS".
 *
 * A 64-bit x86 machine marks for itself, by no-operations (tools/lab/tools/load.c): `marks=PATH` names a file that gets a
 * line for each pair of marks: instructions of programs below 256 MB, of others, of the kernel; system calls of the
 * first and of the second. With `profile=PATH` the blocks between the marks go to PATH.0, PATH.1 and so on: "ADDRESS
 * INSTRUCTIONS TIMES". Processors must take turns in one thread of qemu's, as they do with -icount.
 *
 * Debian ships neither a plug-in nor the header, so the part of the interface (version 1) that is used is declared
 * here.
 *
 *   cc -O2 -shared -fPIC -o count.so count.c
 *   qemu-arm -plugin ./count.so PROGRAM
 *   qemu-system-arm -plugin ./count.so,counts=PATH ...
 *   qemu-system-x86_64 -icount shift=0 -plugin ./count.so,marks=PATH ...
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info;
enum { INLINE_ADD_U64 = 0 };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int op, void *counter, uint64_t add);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *), int flags, void *);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t,
                                          void (*)(qemu_plugin_id_t, unsigned, int64_t, uint64_t, uint64_t, uint64_t,
                                                   uint64_t, uint64_t, uint64_t, uint64_t, uint64_t));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

/* "MARK" in ASCII; also in examples/count.rs. */
static const uint32_t MAGIC = 0x4d41524b;

static uint64_t executed, simd;
static uint64_t executed_before, simd_before;
static bool a32, a64;

/* Arm ARM, A64 top level: bits 28..25 are x111 for SIMD and FP, x1x0 with bit 26 set for their loads and stores. */
static bool is_simd_a64(uint32_t word)
{
    uint32_t group = word >> 25 & 15;
    return (group & 7) == 7 || ((group & 5) == 4 && word >> 26 & 1);
}

/* Arm ARM, A32: 1111001x and 11110100 are Advanced SIMD; coprocessors 10 and 11 are VFP and transfers. */
static bool is_simd_a32(uint32_t word)
{
    uint32_t top = word >> 24;
    if ((top & 0xfe) == 0xf2 || (top == 0xf4 && !(word >> 20 & 1)))
        return true;
    return (top & 0xf) >= 0xc && (top & 0xf) <= 0xe && (word >> 9 & 7) == 5;
}

/* Arm ARM, T32: the same, with other bits in front; `word` has the first halfword on top. */
static bool is_simd_t32(uint32_t word)
{
    uint32_t top = word >> 24;
    if ((top & 0xef) == 0xef || (top == 0xf9 && !(word >> 20 & 1)))
        return true;
    return (top & 0xec) == 0xec && (top & 3) != 3 && (word >> 9 & 7) == 5;
}

static uint32_t little_endian(const uint8_t *bytes)
{
    return bytes[0] | bytes[1] << 8 | bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* Nothing says whether a block is Thumb code. A short instruction or an odd place proves it; failing that, all of a
 * block's instructions must begin as long ones of T32 do, which A32 code does by chance only where it is very short. */
static bool is_thumb(const struct qemu_plugin_tb *block, size_t count)
{
    for (size_t at = 0; at < count; at++) {
        const struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, at);
        if (qemu_plugin_insn_size(insn) == 2 || qemu_plugin_insn_vaddr(insn) & 2)
            return true;
        if (((const uint8_t *)qemu_plugin_insn_data(insn))[1] < 0xe8)
            return false;
    }
    return true;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    size_t count = qemu_plugin_tb_n_insns(block), found = 0;
    bool thumb = a32 && is_thumb(block, count);
    (void)id;
    /* Of other processors only the number is known. */
    for (size_t at = 0; at < count && (a32 || a64); at++) {
        const struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, at);
        if (qemu_plugin_insn_size(insn) != 4)
            continue;
        uint32_t word = little_endian(qemu_plugin_insn_data(insn));
        if (a64 ? is_simd_a64(word) : thumb ? is_simd_t32(word << 16 | word >> 16) : is_simd_a32(word))
            found++;
    }
    qemu_plugin_register_vcpu_tb_exec_inline(block, INLINE_ADD_U64, &executed, count);
    if (found)
        qemu_plugin_register_vcpu_tb_exec_inline(block, INLINE_ADD_U64, &simd, found);
}

static void called(qemu_plugin_id_t id, unsigned cpu, int64_t number, uint64_t which, uint64_t who, uint64_t a3,
                   uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8)
{
    (void)id, (void)cpu, (void)number, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
    if ((uint32_t)which != MAGIC)
        return;
    if (who & 1)
        fprintf(stderr, "count %u %llu %llu\n", (unsigned)who - 1,
                (unsigned long long)(executed - executed_before), (unsigned long long)(simd - simd_before));
    executed_before = executed;
    simd_before = simd;
}

/* Where 32-bit ARM's kernel begins: its modules, 16 MB below the upper gigabyte. */
static const uint64_t KERNEL = 0xbf000000;

/* Instructions in user mode and in the kernel, in the file. */
static uint64_t *machine;

/* A block of a machine's, for the profile. Translations are thrown away and made again: an address may have many. */
struct block {
    struct block *next;
    uint64_t address, count, executed, before;
};
static struct block *blocks;
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;
static const char *profile;

static void add_block(struct qemu_plugin_tb *translation, uint64_t address, size_t count)
{
    struct block *block = profile ? calloc(1, sizeof *block) : NULL;
    if (!block)
        return;
    block->address = address;
    block->count = count;
    pthread_mutex_lock(&blocks_lock);
    block->next = blocks;
    blocks = block;
    pthread_mutex_unlock(&blocks_lock);
    qemu_plugin_register_vcpu_tb_exec_inline(translation, INLINE_ADD_U64, &block->executed, count);
}

static void translated_in_machine(qemu_plugin_id_t id, struct qemu_plugin_tb *translation)
{
    size_t count = qemu_plugin_tb_n_insns(translation);
    uint64_t address = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(translation, 0));
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(translation, INLINE_ADD_U64, &machine[address >= KERNEL], count);
    add_block(translation, address, count);
}

/* Writes what was executed since the last time, and forgets it; without a path it only forgets. */
static void write_profile(const char *path, bool times)
{
    FILE *out = path ? fopen(path, "w") : NULL;
    pthread_mutex_lock(&blocks_lock);
    for (struct block *block = blocks; block; block = block->next) {
        uint64_t executed = block->executed - block->before;
        block->before = block->executed;
        if (!out || !executed)
            continue;
        unsigned long long address = block->address, instructions = executed;
        if (times)
            fprintf(out, "%016llx %llu %llu\n", address, instructions, instructions / (unsigned)block->count);
        else
            fprintf(out, "%08llx %llu\n", address, instructions);
    }
    pthread_mutex_unlock(&blocks_lock);
    if (out)
        fclose(out);
}

static void *write_profiles(void *signals)
{
    for (;;) {
        int which;
        if (sigwait(signals, &which))
            return NULL;
        write_profile(profile, false);
    }
}

static bool count_machine(qemu_plugin_id_t id, const char *path)
{
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, 2 * sizeof *machine))
        return false;
    machine = mmap(NULL, 2 * sizeof *machine, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (machine == MAP_FAILED)
        return false;
    if (profile) {
        static sigset_t signals;
        pthread_t thread;
        sigemptyset(&signals);
        sigaddset(&signals, SIGUSR1);
        /* Threads that qemu makes later inherit that it is blocked. */
        if (pthread_sigmask(SIG_BLOCK, &signals, NULL) || pthread_create(&thread, NULL, write_profiles, &signals))
            return false;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated_in_machine);
    return true;
}

/* What marks of an x86-64 machine's enclose: in the order of a line. */
enum { LOW, HIGH, SYSTEM, LOW_CALLS, HIGH_CALLS, COUNTS };
static uint64_t marked[COUNTS], marked_before[COUNTS];
static FILE *marks;
static unsigned pairs;
/* Below are programs that are linked at a fixed address: the load. */
static const uint64_t LOW_END = 0x10000000;

static void mark_begins(unsigned cpu, void *data)
{
    (void)cpu, (void)data;
    memcpy(marked_before, marked, sizeof marked);
    if (profile)
        write_profile(NULL, true);
}

static void mark_ends(unsigned cpu, void *data)
{
    char path[4096];
    (void)cpu, (void)data;
    for (int at = 0; at < COUNTS; at++)
        fprintf(marks, "%llu%c", (unsigned long long)(marked[at] - marked_before[at]), at + 1 < COUNTS ? ' ' : '\n');
    fflush(marks);
    if (profile) {
        snprintf(path, sizeof path, "%s.%u", profile, pairs);
        write_profile(path, true);
    }
    pairs++;
}

static void translated_with_marks(qemu_plugin_id_t id, struct qemu_plugin_tb *translation)
{
    size_t count = qemu_plugin_tb_n_insns(translation);
    uint64_t address = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(translation, 0));
    int whose = address >> 63 ? SYSTEM : address < LOW_END ? LOW : HIGH;
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(translation, INLINE_ADD_U64, &marked[whose], count);
    add_block(translation, address, count);
    for (size_t at = 0; at < count && whose != SYSTEM; at++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(translation, at);
        const uint8_t *bytes = qemu_plugin_insn_data(insn);
        size_t size = qemu_plugin_insn_size(insn);
        /* SYSCALL ends a block. */
        if (size == 2 && bytes[0] == 0x0f && bytes[1] == 0x05)
            qemu_plugin_register_vcpu_tb_exec_inline(translation, INLINE_ADD_U64,
                                                     &marked[whose == LOW ? LOW_CALLS : HIGH_CALLS], 1);
        /* NOP with four bytes of displacement: the number. */
        if (size != 8 || memcmp(bytes, "\x0f\x1f\x84", 4))
            continue;
        uint32_t number = little_endian(bytes + 4);
        if (number == MAGIC || number == MAGIC + 1)
            qemu_plugin_register_vcpu_insn_exec_cb(insn, number == MAGIC ? mark_begins : mark_ends, 0, NULL);
    }
}

/* `info` begins with the target's name in every version of the interface. */
__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info,
                                                               int count, char **arguments)
{
    const char *target, *file = NULL, *marks_file = NULL;
    memcpy(&target, info, sizeof target);
    a32 = strcmp(target, "arm") == 0;
    a64 = strcmp(target, "aarch64") == 0;
    for (int at = 0; at < count; at++) {
        if (!strncmp(arguments[at], "counts=", 7))
            file = strdup(arguments[at] + 7);
        else if (!strncmp(arguments[at], "marks=", 6))
            marks_file = strdup(arguments[at] + 6);
        else if (!strncmp(arguments[at], "profile=", 8))
            profile = strdup(arguments[at] + 8);
        else
            return -1;
    }
    if (marks_file) {
        marks = fopen(marks_file, "w");
        qemu_plugin_register_vcpu_tb_trans_cb(id, translated_with_marks);
        return marks ? 0 : -1;
    }
    if (file)
        return count_machine(id, file) ? 0 : -1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_vcpu_syscall_cb(id, called);
    return 0;
}
