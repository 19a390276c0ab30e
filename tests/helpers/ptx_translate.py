"""Translates PTX to C: every function of a module to a C function that runs one thread; ptx_host.c is included.

Registers become C variables, memory keeps its addresses, and every access is preceded by a check. What is not known is
refused with NotImplementedError, never guessed: warps (shfl, vote, bar.sync), flushing to zero, other roundings.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from ptx_arithmetic import LOGIC, NOT_MODELLED, Arithmetic, ctype
from ptx_parse import SIZES, Function, Module, Variable, declaration, immediate_bits, is_float

COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
COMPARE |= {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
COMPARE_OR_NAN = {"equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}
TO_WHOLE = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
SPACES = ("local", "global", "shared", "param", "const")
ATOMS = {"add": "{0} + {1}", "exch": "{1}", "min": "{0} < {1} ? {0} : {1}", "max": "{0} > {1} ? {0} : {1}"}
ATOMS |= {"and": "{0} & {1}", "or": "{0} | {1}"}


@dataclass
class Translation:
    """C code, and what it has: `blocks` counts the instructions of every basic block by category."""

    source: str = ""
    blocks: list[Counter] = field(default_factory=list)
    block_of: list[int] = field(default_factory=list)  # of every statement
    stack_bytes: int = 0
    shared_bytes: int = 16


def translate(module: Module, mutants: dict[int, str] | None = None) -> Translation:
    """mutants: statements that replace others, by number; a launch chooses one of them, or none."""
    made = Translation()
    bodies = [FunctionTranslator(module, f, made, mutants or {}).translate() for f in module.functions]
    names = set(re.findall(r"[$\w]+", "\n".join(module.statements)))
    used = [v for v in module.variables if v.name in names]
    made.source = "\n".join([
        f"#define FRAME_BYTES {made.stack_bytes}",
        f"#define SHARED_BYTES {made.shared_bytes}",
        f"#define NUM_FRAMES {sum('.local' in s for s in module.statements) + 1}",
        f"#define KERNEL F_{module.kernel.name}",
        '#include "ptx_host.c"',
        *(_table(v) for v in used),
        f"const struct range constants[] = {{{', '.join([*map(_range, used), '{0, 0}'])}}};",
        f"const int num_constants = {len(used)};",
        *(f"static void F_{f.name}({_parameters(f)});" for f in module.functions),
        *bodies, "",
    ])  # fmt: skip
    return made


def _table(v: Variable) -> str:
    data = ",".join(map(str, v.data)) or "0"
    return f"static const uint8_t G_{v.name}[{v.size}] __attribute__((aligned({v.align}))) = {{{data}}};"


def _range(v: Variable) -> str:
    return f"{{(uint64_t)G_{v.name}, (uint64_t)G_{v.name} + {v.size}}}"


def _parameters(f: Function) -> str:
    if f.is_kernel:
        return "struct thread *T, const uint64_t *P"
    return ", ".join(["struct thread *T", *(f"uint8_t *A_{v.name}" for v in [*f.returns, *f.params])])


def _c_name(register: str) -> str:
    return "R_" + register.lstrip("%").replace("$", "_")


def _elements(text: str) -> list[str]:
    """Of a vector in braces, or the one operand."""
    return [e.strip() for e in text.strip("{} ").split(",")]


class FunctionTranslator(Arithmetic):
    """One function. A method do_x translates the instruction x; the others are in ptx_arithmetic.py."""

    def __init__(self, module: Module, function: Function, made: Translation, mutants: dict[int, str]):
        self.function, self.made, self.mutants = function, made, mutants
        self.used = set(re.findall(r"%\w+", "\n".join(function.statements)))
        self.scopes: list[dict[str, str]] = [{}]  # type of every register
        self.addresses = {v.name: f"(uint64_t)G_{v.name}" for v in module.variables}  # C, of every variable
        self.addresses |= {v.name: f"(uint64_t)A_{v.name}" for v in [*function.params, *function.returns]}
        self.param_sizes = {v.name: v.size for v in [*function.params, *function.returns]}
        if function.is_kernel:
            self.addresses |= {v.name: f"P[{k}]" for k, v in enumerate(function.params)}
        self.number = function.first_statement
        self.counts = True  # a mutant does not count as an instruction

    def translate(self) -> str:
        out = [self.begin_block()]
        for number, statement in enumerate(self.function.statements, start=self.function.first_statement):
            self.number = number
            self.made.block_of.append(len(self.made.blocks) - 1)
            try:
                out.append(self.statement(statement))
            except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
                raise NotImplementedError(f"{self.function.name}: {statement}") from error
        before = "unsigned carry = 0; uint64_t top = T->top, num_frames = T->num_frames;"
        head = f"static void F_{self.function.name}({_parameters(self.function)})\n{{\n{before}"
        return "\n".join([head, *out, "end: pop_frames(T, top, num_frames);\n}"])

    # -- structure

    def begin_block(self) -> str:
        self.made.blocks.append(Counter())
        return f"BLOCK({len(self.made.blocks) - 1})"

    def tally(self, category: str) -> None:
        self.made.blocks[-1][category] += self.counts

    def statement(self, text: str) -> str:
        if text == "{":
            self.scopes.append({})
            return "{"
        if text == "}":
            self.scopes.pop()
            return "}"
        if text.endswith(":"):
            return f"L_{text[:-1].replace('$', '')}:;" + self.begin_block()
        if text.startswith("."):
            return self.declare(text)
        code = self.instruction(text)
        if self.number in self.mutants:
            self.counts = False
            code = (
                f"if (T->mutant == {self.number}) {{ {self.instruction(self.mutants[self.number])} }} else {{ {code} }}"
            )
            self.counts = True
        ends_block = re.sub(r"@!?%\w+\s+", "", text).startswith(("bra", "ret", "exit"))
        return code + (self.begin_block() if ends_block else "")

    def declare(self, text: str) -> str:
        space = text.split()[0]
        if space == ".reg":
            return self.declare_registers(*re.match(r"\.reg\s+\.(\w+)\s+(.*)", text).groups())
        if space in (".pragma", ".loc"):
            return ""
        v = declaration(text)
        if space == ".local":
            self.made.stack_bytes += v.size + 48  # with what push_frame leaves free
            self.addresses[v.name] = f"A_{v.name}"
            return f"uint64_t A_{v.name} = push_frame(T, {v.size}, {v.align});"
        if space == ".shared":
            at = -(-self.made.shared_bytes // v.align) * v.align
            self.addresses[v.name] = f"{at}u"
            self.made.shared_bytes = at + v.size
            return ""
        if space == ".param":  # of a call that follows
            self.addresses[v.name] = f"(uint64_t)A_{v.name}"
            self.param_sizes[v.name] = v.size
            return f"uint8_t A_{v.name}[{v.size}] __attribute__((aligned({max(v.align, 8)})));"
        raise NotImplementedError(text)

    def declare_registers(self, kind: str, names: str) -> str:
        code = []
        for name in names.split(","):
            many = re.fullmatch(r"\s*(%?\w+)<(\d+)>", name)
            numbered = [f"{many[1]}{k}" for k in range(int(many[2]))] if many else [name.strip()]
            for register in (n for n in numbered if n in self.used or not many):
                self.scopes[-1][register] = kind
                code.append(f"{ctype(kind)} {_c_name(register)} = ({ctype(kind)})T->undefined;")
        return "\n".join(code)

    # -- operands

    def kind_of(self, register: str) -> str | None:
        return next((scope[register] for scope in reversed(self.scopes) if register in scope), None)

    def read(self, text: str, kind: str) -> str:
        """C expression of an operand as a value of the given type."""
        text = text.strip()
        if text.startswith("!"):
            return f"!{self.read(text[1:], kind)}"
        own = self.kind_of(text)
        if own is not None:
            if is_float(own) == is_float(kind) or kind == "pred":
                return _c_name(text) if is_float(own) or own == kind else f"(({ctype(kind)}){_c_name(text)})"
            return f"(({ctype(kind)}){_same_bits(own, kind)}({_c_name(text)}))"
        if text.startswith("%"):
            return f"({ctype(kind)})T->{text[1:].replace('.', '_')}"
        if text in self.addresses:
            return f"({ctype(kind)})({self.addresses[text]})"
        if kind == "pred":
            return str(int(text, 0))
        bits = f"{immediate_bits(text, kind):#x}ull"
        return f"u{8 * SIZES[kind]}_to_f({bits})" if is_float(kind) else f"(({ctype(kind)}){bits})"

    def write(self, register: str, kind: str, value: str) -> str:
        """C statement that assigns a value of the given type to a register."""
        register = register.strip()
        if register == "_":
            return f"(void)({value});"
        own = self.kind_of(register)
        if is_float(own) != is_float(kind):
            return f"{_c_name(register)} = {_same_bits(kind, own)}({value});"
        cast = "" if is_float(kind) or kind == "pred" else f"({ctype(kind)})"
        return f"{_c_name(register)} = {cast}({value});"

    def address(self, text: str, size: int) -> str:
        base, sign, offset = re.fullmatch(r"\[\s*([%$\w.]+?)\s*(?:([+-])\s*(-?\d+))?\s*\]", text).groups()
        if base in self.param_sizes and not 0 <= int(offset or 0) <= self.param_sizes[base] - size:
            raise ValueError(f"{size} bytes at {text} are not within the parameter")
        wide = "u32" if self.kind_of(base) in ("b32", "u32", "s32") else "u64"
        return f"(uint64_t)({self.read(base, wide)}) {sign or '+'} {offset or 0}ll"

    # -- instructions

    def instruction(self, text: str) -> str:
        guard = re.match(r"@(!?)(%\w+)\s+(.*)", text)
        condition = ""
        if guard:
            condition, text = f"if ({guard[1]}{_c_name(guard[2])}) ", guard[3]
        name, rest = re.fullmatch(r"(\S+)\s*(.*)", text).groups()
        parts = name.split(".")
        operands = re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,{}\[\]()])+", rest)
        handler = getattr(self, f"do_{parts[0]}", self.arithmetic)
        return f"{condition}{{ {handler(parts, [o.strip() for o in operands if o.strip()])} }}"

    def do_bra(self, parts, operands):
        self.tally("branch")
        return f"goto L_{operands[0].replace('$', '')};"

    def do_ret(self, parts, operands):
        self.tally("branch")
        return "goto end;"

    do_exit = do_ret

    def do_call(self, parts, operands):
        self.tally("call")
        returns, name, arguments = operands if operands[0].startswith("(") else ("", *operands, "")[:3]
        given = re.findall(r"[$\w]+", f"{returns} {arguments}")
        return f"F_{name}({', '.join(['T', *(self.addresses[n].replace('(uint64_t)', '') for n in given)])});"

    def do_cvta(self, parts, operands):
        """From and to generic addresses: those of local and global memory are generic, those of shared memory not."""
        self.tally("int64")
        value = self.read(operands[1], "u64")
        if "shared" in parts:
            value += " - T->shared" if "to" in parts else " + T->shared"
        return self.write(operands[0], "u64", value)

    def do_mov(self, parts, operands):
        self.tally("mov")
        (target, source), kind = operands, parts[-1]
        bits = kind.replace("b", "u")
        if source.startswith("{"):
            names = _elements(source)
            width = 8 * SIZES[kind] // len(names)
            joined = " | ".join(f"(uint64_t)({self.read(n, f'u{width}')}) << {k * width}" for k, n in enumerate(names))
            return self.write(target, bits, joined)
        if target.startswith("{"):
            names = _elements(target)
            width = 8 * SIZES[kind] // len(names)
            parted = (self.write(n, f"u{width}", f"whole >> {k * width}") for k, n in enumerate(names))
            return f"uint64_t whole = {self.read(source, bits)}; {' '.join(parted)}"
        return self.write(target, kind, self.read(source, kind))

    def access(self, parts, place: str, store: int) -> str:
        """C code that makes the checked address `a`; of host memory, also for shared memory."""
        space = next((p for p in parts if p in SPACES), "generic")
        vector = int(next((p[1:] for p in parts if p in ("v2", "v4", "v8")), 1))
        self.tally(f"{'st' if store else 'ld'}.{space}")
        size = SIZES[parts[-1]] * vector
        code = f"uint64_t a = {self.address(place, size)}; check_{space}(T, a, {size}, {store}, {self.number});"
        return code + (" a += T->shared;" if space == "shared" else "")

    def do_ld(self, parts, operands):
        kind = parts[-1]
        code = self.access(parts, operands[1], store=0)
        values = (f"*({ctype(kind)} *)(a + {k * SIZES[kind]})" for k in range(8))
        return code + " ".join(self.write(n, kind, value) for n, value in zip(_elements(operands[0]), values))

    do_ldu = do_ld

    def do_st(self, parts, operands):
        kind = parts[-1]
        code = self.access(parts, operands[0], store=1)
        places = (f"*({ctype(kind)} *)(a + {k * SIZES[kind]})" for k in range(8))
        return code + " ".join(f"{p} = {self.read(n, kind)};" for n, p in zip(_elements(operands[1]), places))

    def do_atom(self, parts, operands):
        """One thread runs at a time, so that nothing interferes."""
        kind = parts[-1]
        operation = next(ATOMS[p] for p in parts if p in ATOMS)
        target, place, value = ("_", *operands) if parts[0] == "red" else operands
        memory, new = f"*({ctype(kind)} *)a", operation.format("old", self.read(value, kind))
        code = f"{self.access(parts, place, store=1)} {ctype(kind)} old = {memory}; {memory} = {new};"
        return code + self.write(target, kind, "old")

    do_red = do_atom

    def do_setp(self, parts, operands):
        compare, kind = parts[1], parts[-1]
        self.tally(f"float.{kind}" if is_float(kind) else "int32")
        a, b = (self.read(o, kind) for o in operands[1:3])
        if compare in COMPARE:
            value = f"{a} {COMPARE[compare]} {b}"
            if compare == "ne" and is_float(kind):  # false for NaN, unlike C's
                value = f"({a} < {b} || {a} > {b})"
        elif compare in COMPARE_OR_NAN:
            value = f"(isunordered({a}, {b}) || {a} {COMPARE_OR_NAN[compare]} {b})"
        else:
            value = {"num": f"!isunordered({a}, {b})", "nan": f"isunordered({a}, {b})"}[compare]
        code = f"int yes = {value}; int no = !yes;"
        if len(operands) == 4:
            sign, other = LOGIC[parts[2]], f"!!({self.read(operands[3], 'pred')})"
            code += f" yes = yes {sign} {other}; no = no {sign} {other};"
        return code + " ".join(self.write(n, "pred", v) for n, v in zip(operands[0].split("|"), ("yes", "no")))

    def do_selp(self, parts, operands):
        kind = parts[-1]
        self.tally("select")
        a, b = (self.read(o, kind) for o in operands[1:3])
        return self.write(operands[0], kind, f"{self.read(operands[3], 'pred')} ? {a} : {b}")

    def do_cvt(self, parts, operands):
        to, of = parts[-2:]
        self.tally("convert")
        value = self.read(operands[1], of)
        whole = next((TO_WHOLE[p] for p in parts if p in TO_WHOLE), None)
        narrows = is_float(to) and whole is None and not (is_float(of) and SIZES[to] >= SIZES[of])
        if set(parts) & NOT_MODELLED or (narrows and "rn" not in parts):
            raise NotImplementedError(".".join(parts))
        if is_float(of) and whole:
            value = f"{whole}((double){value})"
        if is_float(of) and not is_float(to):
            value = f"float_to_{to}({value})"
        return self.write(operands[0], to, f"({ctype(to)})({value})")


def _same_bits(of: str, to: str) -> str:
    """The C function that takes the bits of an integer as a float, or the reverse."""
    return f"{'f' if is_float(of) else 'u'}{8 * SIZES[of]}_to_{'f' if is_float(to) else 'u'}"
