/* A plug-in for qemu-user that tells whether a program's way depends on its secrets.
 *
 * The guest marks regions as for count.c: getpriority(MAGIC, id), an even id to begin and the next odd one to end. For
 * each region one line comes out on standard error:
 *
 *   trace <id> <instructions> <sum> <accesses> <sum>
 *
 * The first sum is over the addresses of all instructions that were executed, in their order; the second over the
 * address, the width and the direction of each access to memory, in their order. Run twice with different secrets, a program
 * without secret branches and without secret addresses prints the same lines, if its memory is laid out in the same way:
 * static programs with one thread and arguments of the same length are, for qemu has no random addresses of its own.
 *
 * An instruction of 32-bit ARM whose condition is false counts as executed, and touches nothing. How long one takes is not seen.
 *
 * With `region=ID,path=PATH` everything that is in the sums of that region is also written there, a line each: where two
 * such files part, the leak is.
 *
 * Debian does not ship the header, so the part of the interface (version 1) that is used is declared here.
 *
 *   cc -O2 -shared -fPIC -o traces.so traces.c
 *   qemu-arm -plugin ./traces.so PROGRAM
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info;
enum { NO_REGISTERS = 0 };
enum { READ_AND_WRITE = 3 };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *), int registers, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *,
                                      void (*)(unsigned, qemu_plugin_meminfo_t, uint64_t, void *), int registers,
                                      int direction, void *);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t,
                                          void (*)(qemu_plugin_id_t, unsigned, int64_t, uint64_t, uint64_t, uint64_t,
                                                   uint64_t, uint64_t, uint64_t, uint64_t, uint64_t));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
unsigned qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

/* "MARK" in ASCII; also in examples/ciphers/mod.rs. */
static const uint32_t MAGIC = 0x4d41524b;

struct sum {
    uint64_t count, value;
};

static bool within;
static struct sum instructions, accesses;
/* The region that is written out, and where to; while the program is in it, the second is the file. */
static long chosen = -1;
static FILE *all, *out;

/* Each step can be undone, so that two orders of addresses that differ in one place never have one sum. */
static void add(struct sum *sum, uint64_t value)
{
    sum->count++;
    sum->value = ((sum->value << 5 | sum->value >> 59) ^ value) * 0x517cc1b727220a95;
}

static void executed(unsigned cpu, void *address)
{
    (void)cpu;
    if (!within)
        return;
    add(&instructions, (uintptr_t)address);
    if (out)
        fprintf(out, "%llx\n", (unsigned long long)(uintptr_t)address);
}

static void accessed(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void *unused)
{
    (void)cpu, (void)unused;
    if (!within)
        return;
    unsigned what = qemu_plugin_mem_size_shift(info) << 1 | qemu_plugin_mem_is_store(info);
    add(&accesses, address);
    accesses.value += what;
    if (out)
        fprintf(out, "  %s %llx, %u bytes\n", what & 1 ? "store" : "load", (unsigned long long)address, 1u << (what >> 1));
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    for (size_t at = 0; at < qemu_plugin_tb_n_insns(block); at++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, at);
        void *address = (void *)(uintptr_t)qemu_plugin_insn_vaddr(insn);
        qemu_plugin_register_vcpu_insn_exec_cb(insn, executed, NO_REGISTERS, address);
        qemu_plugin_register_vcpu_mem_cb(insn, accessed, NO_REGISTERS, READ_AND_WRITE, NULL);
    }
}

static void called(qemu_plugin_id_t id, unsigned cpu, int64_t number, uint64_t which, uint64_t who, uint64_t a3,
                   uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8)
{
    (void)id, (void)cpu, (void)number, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
    if ((uint32_t)which != MAGIC)
        return;
    if (who & 1)
        fprintf(stderr, "trace %u %llu %016llx %llu %016llx\n", (unsigned)who - 1,
                (unsigned long long)instructions.count, (unsigned long long)instructions.value,
                (unsigned long long)accesses.count, (unsigned long long)accesses.value);
    within = !(who & 1);
    instructions = accesses = (struct sum){0, 0};
    out = within && (long)who == chosen ? all : NULL;
    if (all)
        fflush(all);
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info,
                                                               int count, char **arguments)
{
    (void)info;
    for (int at = 0; at < count; at++) {
        if (!strncmp(arguments[at], "region=", 7))
            chosen = strtol(arguments[at] + 7, NULL, 10);
        else if (!strncmp(arguments[at], "path=", 5))
            all = fopen(arguments[at] + 5, "w");
        else
            return -1;
    }
    if (chosen >= 0 && !all)
        return -1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_vcpu_syscall_cb(id, called);
    return 0;
}
