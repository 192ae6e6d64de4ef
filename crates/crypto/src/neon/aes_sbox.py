"""Allocates registers for the S-box circuits of the bit-sliced AES, and writes them as assembler macros.

    python3 aes_sbox.py arm > aes_sbox_arm.h
    python3 aes_sbox.py aarch64 > aes_sbox_aarch64.h

A circuit takes the eight bits of a byte, most significant first, as in0 to in7 in registers 0 to 7, and leaves s0 to s7
there. The constant 0x63 is part of the round keys instead (aes_arm/bitsliced.rs).

The circuits are in aes_sbox.txt: result, operation, inputs. They go back to J. Boyar and R. Peralta, "A small depth-16 circuit for the AES S-box" (2012), with 115 gates. What
NEON has beyond two-input gates makes them shorter:

- the inversion in GF(2^4) takes 9 gates, four of them multiplexers (`vbsl`, written `? selector one zero`), instead of 16;
- `|` for `&` in two of the nine products before it adds the linear terms that they need anyway;
- the linear layers were searched anew, with the method of that paper, for the sums that are left.

102 gates forwards and 101 backwards are left. The order of the gates was found by simulated annealing on the number of
instructions that this allocator makes of them with 16 registers: what does not fit is spilled, or computed again where it is
the sum of two values at hand. The script checks every circuit, and every allocation, against the S-box of FIPS 197.

ARMv7 stores and loads up to eight registers with one instruction if they follow each other. `forward_arm` and `inverse_arm` in
the file are the circuits in an order (again by annealing) and with registers (by a constraint solver) such that a few of these
instructions spill all that does not fit: 108 and 109 instead of 117 and 117. There a line is an operation, its result and its
inputs, by their registers; of `store` and `load` the first register, how many, and the first place in memory.
"""

import pathlib
import random
import sys


ADDRESSES = 6  # Registers that the callers of the macros have for places in memory.
PLACES = 12  # These, of 16 bytes.


def s_box():
    """The S-box of FIPS 197, section 5.1.1, without its constant, and its inverse."""

    def times(a, b):
        product = 0
        while b:
            product ^= a if b & 1 else 0
            a = (a << 1) ^ (0x11B if a & 0x80 else 0)
            b >>= 1
        return product

    table = []
    for byte in range(256):
        inverse = byte
        for _ in range(6):
            inverse = times(times(inverse, inverse), byte)
        inverse = times(inverse, inverse)
        out = 0
        for turn in range(5):
            out ^= (inverse << turn | inverse >> (8 - turn)) & 0xFF
        table.append(out)
    return table, [table.index(byte) for byte in range(256)]


ALL = (1 << 256) - 1


def gate(op, *inputs):
    """What a gate gives, for 256 inputs at once."""
    if op == "^":
        return inputs[0] ^ inputs[1]
    if op == "&":
        return inputs[0] & inputs[1]
    if op == "|":
        return inputs[0] | inputs[1]
    if op == "~":
        return inputs[0] & ~inputs[1]
    assert op == "?"
    return (inputs[0] & inputs[1]) | (~inputs[0] & inputs[2] & ALL)


def bits(function):
    """Bit after bit of `function` of every byte, most significant first."""
    return [
        sum((function(byte) >> (7 - bit) & 1) << byte for byte in range(256)) for bit in range(8)
    ]


class Circuit:
    def __init__(self, gates, table):
        self.gates = gates
        self.values = {f"in{bit}": value for bit, value in enumerate(bits(lambda byte: byte))}
        self.linear = {f"in{bit}": 1 << bit for bit in range(8)}
        for out, op, *inputs in self.gates:
            self.values[out] = gate(op, *(self.values[name] for name in inputs))
            if op == "^" and all(name in self.linear for name in inputs):
                self.linear[out] = self.linear[inputs[0]] ^ self.linear[inputs[1]]
        self.sums = {}
        for name, form in self.linear.items():
            self.sums.setdefault(form, name)
        for bit, value in enumerate(bits(lambda byte: table[byte])):
            assert self.values[f"s{bit}"] == value, "not the S-box"

    def steps(self, registers):
        """What to do in which order so that no more values than that are held: gates, copies, spills, loads."""
        uses = {f"s{bit}": [len(self.gates)] for bit in range(8)}
        for at in reversed(range(len(self.gates))):
            for name in set(self.gates[at][2:]):
                uses.setdefault(name, []).insert(0, at)
        steps, held, loaded, evicted = [], [f"in{bit}" for bit in range(8)], set(), set()

        def next_use(name, at):
            return next((use for use in uses.get(name, ()) if use >= at), None)

        def drop(name, at):
            if next_use(name, at) is not None:
                steps.append(("evict", name))
                evicted.add(name)
            held.remove(name)

        def make_room(at, locked):
            """Drops what is needed last; rather what has been dropped before, as that costs no second store."""
            if len(held) < registers:
                return
            best, score = None, -1
            for name in held:
                if name in locked:
                    continue
                use = next_use(name, at)
                if use is None:
                    best = name
                    break
                if use == len(self.gates):
                    continue
                this = use + (12 if name in evicted else 0)
                if this > score:
                    best, score = name, this
            drop(best, at)

        for at, (out, op, *inputs) in enumerate(self.gates):
            for name in inputs:
                if name in held:
                    continue
                pair = self.sum_of(name, held)
                make_room(at, inputs + list(pair))
                if pair:
                    steps.append(("^", name, *pair))
                else:
                    steps.append(("load", name))
                    loaded.add(name)
                held.append(name)
            last = [name for name in inputs if next_use(name, at + 1) is None]
            victim = last[-1] if last else None
            if op == "?" and not last:
                # A multiplexer overwrites one of its inputs: one that lies in memory as well, or a copy.
                spare = [
                    (next_use(name, at + 1), name)
                    for name in inputs
                    if name in loaded and at + 15 < next_use(name, at + 1) < len(self.gates)
                ]
                if spare:
                    victim = max(spare)[1]
            for name in set(last) | ({victim} - {None}):
                drop(name, at + 1)
            if victim is None:
                make_room(at + 1, inputs)
            held.append(out)
            steps.append((op, out, *inputs) + ((victim,) if op == "?" else ()))
        # Only what is loaded again need be stored, and once.
        done, kept = set(), []
        for step in steps:
            if step[0] == "evict":
                if step[1] in loaded and step[1] not in done:
                    done.add(step[1])
                    kept.append(("store", step[1]))
                kept.append(step)
            else:
                kept.append(step)
        return kept

    def sum_of(self, name, held):
        """Two held values whose sum it is."""
        if name in self.linear:
            for one in held:
                if one in self.linear:
                    other = self.sums.get(self.linear[one] ^ self.linear[name])
                    if other in held and other != one:
                        return one, other
        return ()


def allocated(steps, registers, tries=20000):
    """Registers for the steps, so that the outputs end where they belong; with as few exchanges as can be found."""
    last = {}
    for at, step in enumerate(steps):
        for name in step[1:] if step[0] != "evict" else ():
            if name:
                last[name] = at
        if step[0] == "evict":
            last[step[1]] = at
    best = None
    chance = random.Random(1)
    for _ in range(tries):
        where = {f"in{bit}": bit for bit in range(8)}
        slots, free, code = {}, set(range(8, registers)), []

        def release(at, names):
            for name in names:
                if name in where and last[name] <= at and not is_output(name):
                    free.add(where.pop(name))

        def take(name):
            wanted = int(name[1:]) if is_output(name) else None
            if wanted in free:
                register = wanted
            else:
                # The outputs' registers are left free as long as possible.
                high = [register for register in free if register > 7]
                register = chance.choice(sorted(high if high and chance.random() < 0.8 else free))
            free.discard(register)
            where[name] = register
            return register

        for at, (op, name, *inputs) in enumerate(steps):
            if op == "evict":
                if name in where:
                    free.add(where.pop(name))
            elif op == "store":
                slots[name] = len(slots)
                code.append(("store", where[name], 1, slots[name]))
            elif op == "load":
                code.append(("load", take(name), 1, slots[name]))
            elif op == "?":
                *inputs, victim = inputs
                places = [where[value] for value in inputs]
                if victim:
                    free.discard(where[victim])
                    which = inputs.index(victim)
                    register = where.pop(victim)
                    where[name] = register
                    release(at, inputs)
                else:
                    which = 0
                    register = take(name)
                    code.append(("copy", register, places[0]))
                code.append((("bsl", "bif", "bit")[which], register, *places))
            else:
                places = [where[value] for value in inputs]
                release(at, inputs)
                code.append((op, take(name), *places))
        swaps = []
        for bit in range(8):
            if where[f"s{bit}"] != bit:
                swaps.append(("swap", bit, where[f"s{bit}"]))
                for other in range(8):
                    if where[f"s{other}"] == bit:
                        where[f"s{other}"] = where[f"s{bit}"]
                where[f"s{bit}"] = bit
        if best is None or len(swaps) < len(best[1]):
            best = code, swaps
        if not swaps:
            break
    return best[0] + best[1]


def is_output(name):
    return name[0] == "s"


def check(code, table):
    """Runs the code on every byte."""
    registers = dict(enumerate(bits(lambda byte: byte)))
    memory = {}
    for op, out, *inputs in code:
        if op == "store":
            for at in range(inputs[0]):
                memory[inputs[1] + at] = registers[out + at]
        elif op == "load":
            for at in range(inputs[0]):
                registers[out + at] = memory[inputs[1] + at]
        elif op == "copy":
            registers[out] = registers[inputs[0]]
        elif op == "swap":
            registers[out], registers[inputs[0]] = registers[inputs[0]], registers[out]
        elif op in ("bsl", "bif", "bit"):
            places = list(inputs)
            assert places[("bsl", "bif", "bit").index(op)] == out or registers[out] == registers[places[0]]
            registers[out] = gate("?", *(registers[place] for place in places))
        else:
            registers[out] = gate(op, *(registers[place] for place in inputs))
    assert [registers[bit] for bit in range(8)] == bits(lambda byte: table[byte]), "not the S-box"


def addresses(code):
    """Places in memory at which a store or a load begins."""
    return sorted({step[3] for step in code if step[0] in ("store", "load")})


def arm(code):
    spills = addresses(code)
    names = {"^": "veor", "&": "vand", "|": "vorr", "~": "vbic", "bsl": "vbsl", "bif": "vbif", "bit": "vbit"}
    for op, out, *inputs in code:
        if op in ("store", "load"):
            spill = f"SPILL{spills.index(inputs[1])}"
            if inputs[0] <= 2:
                memory = "vst1" if op == "store" else "vld1"
                yield f"{memory}.64 {{d{2 * out}-d{2 * (out + inputs[0]) - 1}}}, [{spill}:128]"
            else:
                memory = "vstmia" if op == "store" else "vldmia"
                yield f"{memory} {spill}, {{d{2 * out}-d{2 * (out + inputs[0]) - 1}}}"
        elif op == "copy":
            yield f"vmov q{out}, q{inputs[0]}"
        elif op == "swap":
            yield f"vswp q{out}, q{inputs[0]}"
        else:
            yield f"{names[op]} q{out}, " + operands(op, inputs, "q{}")


def aarch64(code):
    names = {"^": "eor", "&": "and", "|": "orr", "~": "bic", "bsl": "bsl", "bif": "bif", "bit": "bit"}
    for op, out, *inputs in code:
        assert op not in ("store", "load", "swap"), "more than the caller can give"
        if op == "copy":
            yield f"mov v{out}.16b, v{inputs[0]}.16b"
        else:
            yield f"{names[op]} v{out}.16b, " + operands(op, inputs, "v{}.16b")


def operands(op, inputs, form):
    """Of a multiplexer the two that it does not overwrite: `bsl` takes one and zero, `bif` zero and the selector, `bit` one
    and the selector."""
    selector_one_zero = {"bsl": (1, 2), "bif": (2, 0), "bit": (1, 0)}
    if op in selector_one_zero:
        inputs = [inputs[at] for at in selector_one_zero[op]]
    return ", ".join(form.format(register) for register in inputs)


def circuits():
    """The gates of each section of the file."""
    sections = {}
    for line in pathlib.Path(__file__).with_suffix(".txt").read_text().splitlines():
        words = tuple(line.split())
        if len(words) == 1:
            gates = sections.setdefault(words[0], [])
        elif words and words[0] != "#":
            gates.append(words)
    return sections


def main():
    write, registers = {"arm": (arm, 16), "aarch64": (aarch64, 27)}[sys.argv[1]]
    table, inverse = s_box()
    print("/* Written by aes_sbox.py. Bits in registers 0 to 7, most significant first; all others are used. */")
    if sys.argv[1] == "aarch64":
        print(f"/* But v{registers} to v31. */")
    for name, section, values in (("sub_bytes", "forward", table), ("inv_sub_bytes", "inverse", inverse)):
        sections = circuits()
        if f"{section}_{sys.argv[1]}" in sections:
            code = [
                tuple(int(word) if word.isdigit() else word for word in words)
                for words in sections[f"{section}_{sys.argv[1]}"]
            ]
        else:
            code = allocated(Circuit(sections[section], values).steps(registers), registers)
        check(code, values)
        lines = list(write(code))
        if sys.argv[1] == "arm":
            assert len(addresses(code)) <= ADDRESSES
            assert all(step[2] + step[3] <= PLACES for step in code if step[0] in ("store", "load"))
            print(f"\n.macro {name}_addresses")
            for at, place in enumerate(addresses(code)):
                print(f"\tadd SPILL{at}, sp, #{16 * place}")
            print(".endm")
        print(f"\n/* {len(lines)} instructions. */\n.macro {name}")
        for line in lines:
            print(f"\t{line}")
        print(".endm")


if __name__ == "__main__":
    main()
