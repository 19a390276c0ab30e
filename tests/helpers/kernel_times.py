"""Where the tests' time goes: CPU seconds of every test and file, and which kernels were compiled, how often.

Only active with `pytest --kernel-times=FOLDER`. Every process of a run writes its records to FOLDER as JSON lines; the
last one prints a summary. CPU seconds are compared, not elapsed ones: they change little when the machine is busy.
Start from an empty FOLDER, and set WARP_CACHE_PATH to an empty folder to see a first run.
"""

import json
import os
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import warp as wp


class KernelTimes:
    """A pytest plugin that measures one process, and sums up all of them in the process that reports."""

    def __init__(self, config, folder: str):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.worker = getattr(config, "workerinput", {}).get("workerid", "main")
        self.compiled: list[dict] = []
        self.loading = 0.0
        self._watch_warp()

    def _watch_warp(self) -> None:
        module = type(wp.get_module("kernel_times"))
        compile_module, load = module._compile, module.load

        def watched_compile(module, *args, **options):
            start = time.thread_time()
            compiled = compile_module(module, *args, **options)
            if compiled:
                record = {
                    "name": module.name,
                    "key": module.get_module_identifier(1),
                    "cpu": time.thread_time() - start,
                }
                self.compiled.append(record | _size_class())
            return compiled

        def watched_load(module, *args, **options):
            start = time.thread_time()
            try:
                return load(module, *args, **options)
            finally:
                self.loading += time.thread_time() - start

        module._compile, module.load = watched_compile, watched_load

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        with self._record(item.nodeid, "test"):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector):
        with self._record(collector.nodeid, "import"):
            return (yield)

    def _record(self, name: str, kind: str):
        return _Record(self, name, kind)

    def write(self, record: dict) -> None:
        with (self.folder / f"{self.worker}.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")

    def pytest_terminal_summary(self, terminalreporter):
        if self.worker == "main":
            terminalreporter.write_line(summary(self.folder))


class _Record:
    def __init__(self, times: KernelTimes, name: str, kind: str):
        self.times, self.name, self.kind = times, name, kind

    def __enter__(self):
        self.times.compiled, self.times.loading = [], 0.0
        self.at = time.time()
        self.wall, self.cpu = time.perf_counter(), os.times()

    def __exit__(self, *_):
        cpu = os.times()
        self.times.write({
            "name": self.name,
            "kind": self.kind,
            "worker": self.times.worker,
            "at": self.at,
            "wall": time.perf_counter() - self.wall,
            "cpu": cpu.user + cpu.system - self.cpu.user - self.cpu.system,
            "children": cpu.children_user + cpu.children_system - self.cpu.children_user - self.cpu.children_system,
            "loading": self.times.loading,
            "compiled": self.times.compiled,
        })  # fmt: skip


def _size_class() -> dict:
    """Precision and sizes of the kernel that an engine is about to launch, if there is one on the stack."""
    frame = sys._getframe(2)
    while frame is not None:
        owner, factory = (frame.f_locals.get(name) for name in ("self", "factory"))
        if factory is not None and hasattr(owner, "_kernel_sizes"):
            return {"real": str(owner.dtype).removeprefix("torch."), "sizes": vars(owner._kernel_sizes[factory])}
        frame = frame.f_back
    return {"real": "", "sizes": {}}


def read(folder: Path) -> list[dict]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def summary(folder: Path) -> str:
    records = read(folder)
    files, total = defaultdict(Counter), Counter()
    for record in records:
        compiled = {"compile": sum(c["cpu"] for c in record["compiled"]), "compiled": len(record["compiled"])}
        kind = {"import": record["cpu"]} if record["kind"] == "import" else {}
        numbers = {name: record[name] for name in ("wall", "cpu", "children", "loading")} | compiled | kind
        files[record["name"].split("::")[0]].update(numbers)
        total.update(numbers)
    columns = ("wall", "cpu", "children", "import", "loading", "compile", "compiled")
    lines = ["".join(f"{name:>10}" for name in columns) + "  file"]
    order = sorted(files, key=lambda name: -files[name]["cpu"] - files[name]["children"])
    for name, numbers in [*((name, files[name]) for name in order), ("all", total)]:
        lines.append("".join(f"{numbers[column]:10.1f}" for column in columns) + f"  {name}")

    kernels = defaultdict(list)
    for record in records:
        for kernel in record["compiled"]:
            kernels[kernel["key"]].append(kernel | {"test": record["name"], "worker": record["worker"]})
    lines.append(f"\n{len(kernels)} kernels, compiled {sum(map(len, kernels.values()))} times:")
    for made in sorted(kernels.values(), key=lambda made: -sum(k["cpu"] for k in made)):
        first = made[0]
        sizes = " ".join(f"{name}={value}" for name, value in first["sizes"].items())
        where = ", ".join(f"{k['worker']} {k['test']}" for k in made)
        lines.append(
            f"{sum(k['cpu'] for k in made):7.1f} s  {first['name']} {first['real']} {sizes}\n           {where}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(summary(Path(sys.argv[1])))
