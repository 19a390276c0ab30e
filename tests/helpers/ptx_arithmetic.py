"""Arithmetic of PTX as C expressions; ptx_translate.py has the rest of a function."""

from __future__ import annotations

from ptx_parse import SIZES, is_float

UNARY = {"sqrt": "sqrt{0}({1})", "rsqrt": "1 / sqrt{0}({1})", "ex2": "exp2{0}({1})", "lg2": "log2{0}({1})"}
UNARY |= {"sin": "sin{0}({1})", "cos": "cos{0}({1})", "abs": "fabs{0}({1})", "neg": "-{1}", "rcp": "1 / {1}"}
SLOW = ("div", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos")  # on a GPU: several instructions
NOTHING_TO_DO = ("bar.warp.sync", "membar", "fence", "nanosleep", "prefetch")  # one thread runs at a time
LOGIC = {"and": "&", "or": "|", "xor": "^"}
NOT_MODELLED = {"ftz", "sat", "rz", "rm", "rp"}


def ctype(kind: str) -> str:
    if is_float(kind):
        return {"f32": "float", "f64": "double"}[kind]
    return "int" if kind == "pred" else f"{'' if kind[0] == 's' else 'u'}int{8 * SIZES[kind]}_t"


class Arithmetic:
    """Translates instructions that only change registers. What inherits it knows the registers: read, write, tally."""

    def arithmetic(self, parts, operands) -> str:
        operation, kind = parts[0], parts[-1]
        if ".".join(parts).startswith(NOTHING_TO_DO):
            return ";"
        if set(parts) & NOT_MODELLED:
            raise NotImplementedError(".".join(parts))
        if kind == "pred":
            self.tally("predicate")
            values = [f"!!({self.read(o, 'pred')})" for o in operands[1:]]
            value = f"!{values[0]}" if operation == "not" else f"{values[0]} {LOGIC[operation]} {values[1]}"
            return self.write(operands[0], "pred", value)
        if is_float(kind):
            return self.floating(operation, kind, operands)
        self.tally("int64" if SIZES[kind] == 8 or "wide" in parts else "int32")
        if "cc" in parts or operation in ("addc", "subc", "madc"):
            return self.with_carry(operation, kind, parts, operands)
        if "wide" in parts or "hi" in parts:
            return self.long_product(operation, kind, parts, operands)
        return self.integer(operation, kind, parts, operands)

    def floating(self, operation, kind, operands) -> str:
        fused = operation in ("fma", "mad")
        self.tally(f"slow.{kind}" if operation in SLOW else f"fma.{kind}" if fused else f"float.{kind}")
        suffix = "f" if kind == "f32" else ""
        v = [self.read(o, kind) for o in operands[1:]]
        if operation in ("add", "sub", "mul", "div"):
            value = f"{v[0]} {dict(add='+', sub='-', mul='*', div='/')[operation]} {v[1]}"
        elif fused:
            value = f"fma{suffix}({v[0]}, {v[1]}, {v[2]})"
        elif operation in ("min", "max"):
            value = f"f{operation}{suffix}({v[0]}, {v[1]})"
        elif operation == "copysign":
            value = f"copysign{suffix}({v[1]}, {v[0]})"
        else:
            value = UNARY[operation].format(suffix, v[0])
        return self.write(operands[0], kind, value)

    def with_carry(self, operation, kind, parts, operands) -> str:
        if SIZES[kind] != 4:
            raise NotImplementedError(".".join(parts))
        v = [f"(uint64_t)(uint32_t)({self.read(o, 'u32')})" for o in operands[1:]]
        value = {"a": f"{v[0]} + {v[1]}", "s": f"{v[0]} - {v[1]}"}.get(operation[0])
        if value is None:
            product = f"{v[0]} * {v[1]}"
            value = (f"(({product}) >> 32)" if "hi" in parts else f"(({product}) & 0xffffffffull)") + f" + {v[2]}"
        if operation.endswith("c"):
            value += " - carry" if operation[0] == "s" else " + carry"
        new_carry = "carry = (sum >> 32) & 1; " if "cc" in parts else ""
        return f"uint64_t sum = {value}; {new_carry}" + self.write(operands[0], kind, "(uint32_t)sum")

    def long_product(self, operation, kind, parts, operands) -> str:
        """All bits of a product (wide) or the upper half of them (hi)."""
        bits = 8 * SIZES[kind]
        a, b = (self.read(o, kind) for o in operands[1:3])
        if "wide" in parts:
            result = f"{kind[0]}{2 * bits}"
            value = f"({ctype(result)}){a} * ({ctype(result)}){b}"
        else:
            twice = "__int128" if bits == 64 else f"int{2 * bits}_t"
            if kind[0] != "s":
                twice = f"unsigned {twice}" if bits == 64 else f"u{twice}"
            result, value = kind, f"({ctype(kind)})((({twice}){a} * ({twice}){b}) >> {bits})"
        if operation == "mad":
            value += f" + {self.read(operands[3], result)}"
        return self.write(operands[0], result, value)

    def integer(self, operation, kind, parts, operands) -> str:
        signed, bits = kind[0] == "s", 8 * SIZES[kind]
        plain = kind if signed else f"u{bits}"
        kinds = {"shl": [plain, "u32"], "shr": [plain, "u32"], "bfe": [plain, "u32", "u32"], "shf": ["u32"] * 3}
        kinds |= {"bfi": [plain, plain, "u32", "u32"]}
        v = [self.read(o, k) for o, k in zip(operands[1:], kinds.get(operation, [plain] * 3))]
        symbol = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}.get(operation)
        if symbol:
            value = f"{v[0]} {symbol} {v[1]}"
        elif operation in ("div", "rem"):
            by_zero = f"({ctype(kind)})-1" if operation == "div" else v[0]
            value = f"{v[1]} ? {v[0]} {'/' if operation == 'div' else '%'} {v[1]} : {by_zero}"
        elif operation == "mad":
            value = f"{v[0]} * {v[1]} + {v[2]}"
        elif operation in ("min", "max"):
            value = f"{v[0]} {'<' if operation == 'min' else '>'} {v[1]} ? {v[0]} : {v[1]}"
        elif operation in ("neg", "not", "abs"):
            value = {"neg": "-{0}", "not": "~{0}", "abs": "{0} < 0 ? -{0} : {0}"}[operation].format(v[0])
        elif operation in ("shl", "shr"):
            beyond = f"({v[0]} < 0 ? -1 : 0)" if signed else "0"
            value = f"{v[1]} >= {bits}u ? {beyond} : {v[0]} {'<<' if operation == 'shl' else '>>'} {v[1]}"
        elif operation in ("clz", "popc", "bfe", "bfi", "shf"):
            call = f"{'_'.join(parts)}({', '.join(v)})"
            return self.write(operands[0], "u32" if operation in ("clz", "popc") else plain, call)
        else:
            raise NotImplementedError(".".join(parts))
        return self.write(operands[0], kind, value)
