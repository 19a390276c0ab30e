"""Write what fits on which GPU into docs/gpu.md: `python docs/make_gpu.py`, or `make docs`.

The figures are those of `warp-articulated info SCENE --gpu NAME`: estimates, which need neither a GPU nor compiling.
tests/docs/test_gpu_docs.py checks that the page shows them.
"""

from __future__ import annotations

import re
from pathlib import Path

import warp_articulated as wa
from warp_articulated.cli import gpu_memory
from warp_articulated.device.gpus import GPUS, Gpu, named
from warp_articulated.device.reservation import Stacks, fits, reservation, stacks_of_model
from warp_articulated.device.topology import default_contacts

PAGE = Path(__file__).resolve().parent / "gpu.md"
TABLE = re.compile(r"<!-- table: (\w+) -->.*?<!-- end of table -->", re.DOTALL)
SHOWN = ("RTX 3060", "RTX 4090", "RTX 5090", "L4", "L40S", "A100 40 GB", "A100 80 GB", "H100 SXM", "T4", "Orin")
PENDULUMS = re.compile(r"pendulum[2-6]$")  # between those of one link and of seven
OTHERS = (("laikago", 8), ("laikago", 32), ("ant", 8), ("ant", 32))  # scene and max_contacts


def verdict(gpu: Gpu, stacks: Stacks) -> str:
    if fits(gpu, stacks.adjoint):
        return "yes"
    return "forward" if fits(gpu, stacks.forward) else "no"


def example() -> str:
    """What `info laikago --gpu "RTX 4090"` prints."""
    gpu = named("RTX 4090")
    rows = gpu_memory.rows_for(wa.load("laikago"), gpu)
    lines = [gpu_memory.HEADS, *map(gpu_memory.cells, rows)]
    return "\n".join(f"    {line}" for line in (gpu_memory.about(gpu), *map(gpu_memory.line, lines)))


def scenes() -> str:
    """What fits: a row for each scene."""
    gpus = [named(name) for name in SHOWN]
    lines = [["scene", "max_contacts", "stack, bytes", "adjoint's", *(gpu.name for gpu in gpus)]]
    cases = [(name, None) for name in wa.scene_names() if not PENDULUMS.match(name)]
    for name, given in (*cases, *OTHERS):
        model = wa.load(name)
        max_contacts = given or default_contacts(model)
        stacks = stacks_of_model(model, max_contacts=max_contacts)
        sizes = [f"{stacks.forward:,}", f"{stacks.adjoint:,}"]
        lines.append([name, str(max_contacts), *sizes, *(verdict(gpu, stacks) for gpu in gpus)])
    return table(lines)


def gpus() -> str:
    """What a GPU reserves: a row for each."""
    lines = [["GPU", "multiprocessors", "threads of each", "memory, GB", "a stack of 100 KB reserves, GB"]]
    for gpu in GPUS:
        reserved = reservation(gpu, 100 * 1024) / 1e9
        lines.append([
            gpu.name, str(gpu.multiprocessors), f"{gpu.threads:,}", f"{gpu.memory / 1e9:.0f}", f"{reserved:.1f}",
        ])  # fmt: skip
    return table(lines)


def table(lines: list[list[str]]) -> str:
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |".replace("| --- ", "|---").replace("--- |", "---|") for line in lines)


def fill(text: str) -> str:
    """The page with its tables as they are to be."""
    made = {"example": example, "scenes": scenes, "gpus": gpus}
    return TABLE.sub(lambda m: f"<!-- table: {m[1]} -->\n\n{made[m[1]]()}\n\n<!-- end of table -->", text)


def main() -> None:
    old = PAGE.read_text("utf-8")
    if (new := fill(old)) != old:
        PAGE.write_text(new, "utf-8")
        print(f"wrote docs/{PAGE.name}")


if __name__ == "__main__":
    main()
