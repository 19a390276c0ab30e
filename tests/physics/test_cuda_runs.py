"""The CUDA code runs, without a GPU, and gives the CPU's results: its PTX is translated and run thread by thread.

docs/device_code.md says how, and what this cannot see. `pytest tests/physics/test_cuda_runs.py -m "slow or not slow"`
runs every kernel; without the slow ones it is the rollout of one robot.
"""

import ctypes
import shutil
import warnings
from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from every_joint import machine
from ptx_device import Device, emulated
from ptx_host import Fault, Options, Program
from ptx_mutants import mutate, sample
from recorder import ENVS, difference, gradients, inputs, queries, weights

import warp_articulated as wa

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc to compile what PTX becomes")

# Both compile the same expressions, but fuse other multiplications and additions, and have other sines.
DOUBLE = 1e-11  # relative to the largest value of an array
IMPACT = 1e-10  # the same if impacts interrupt steps: gradients are divided by their speeds; 1.6e-11 was seen
TOLERANCES = {"float32": (5e-6, 2e-4), "float64": (DOUBLE, DOUBLE)}  # of positions and velocities
LUCK, SINGLE = 10.0, 1e-5  # of float32: how much farther from float64 than the CPU, times and plus
ZERO = 1e-14  # gradients in float64 that are smaller than this part of the same loss's largest are zero, rounded
SCENES = ("laikago_feet", "laikago", "ant", "panda_throw", "racecar", "boxes3", "machine")


def simulator(scene: str, num_envs: int, dtype: str, contact_time: str = "step") -> wa.Simulator:
    model = machine() if scene == "machine" else wa.load(scene)
    return wa.Simulator(model, num_envs, device="cpu", dtype=dtype, threads=1, contact_time=contact_time)


def pushed(sim: wa.Simulator, steps: int):
    """q, qd and u of robots that stand in the ground by a little and are pushed, each in its own way."""
    rng = np.random.default_rng(3)
    q, qd = sim.initial_state()
    q[:, 2] -= torch.from_numpy(rng.uniform(0.0, 0.01, sim.num_envs)).to(q)
    q[:, 7:] += torch.from_numpy(rng.normal(scale=0.02, size=(sim.num_envs, sim.model.nq - 7))).to(q)
    qd += torch.from_numpy(rng.normal(scale=0.3, size=(sim.num_envs, sim.model.nv))).to(q)
    return q, qd, sim.initial_control().expand(steps, -1, -1).contiguous()


# -- fast: one kernel


def test_rollout_of_pushed_robots_agrees_with_the_cpu():
    """In float32, through contacts that begin and end.

    Rounding is 6e-8; 40 steps and the contact solver amplify it to 4e-7 in positions and 2e-5 in velocities. A contact
    that began one step earlier would change velocities by 1e-2: the tolerance is between both.
    """
    sim = simulator("laikago_feet", 8, "float32")
    q, qd, u = pushed(sim, 40)
    on_cpu = sim.rollout(q, qd, u)
    with emulated(Device()):
        on_cuda = sim.rollout(q, qd, u)
    errors = [difference(x, y) for x, y in zip(on_cuda, on_cpu)]
    assert all(error < tolerance for error, tolerance in zip(errors, TOLERANCES["float32"])), errors
    assert not torch.equal(on_cuda[1], on_cpu[1])  # or the CPU's own kernel has run
    assert (on_cpu[1][1:] - on_cpu[1][:-1]).abs().max() > 0.1  # feet hit the ground


# -- fast: what runs the PTX, on kernels of a few lines

KERNEL = """
.visible .entry tiny(.param .u64 array, .param .u32 length)
{
    .local .align 4 .b8 frame[16];
    .reg .pred %p<3>;
    .reg .b32 %r<9>;
    .reg .f32 %f<9>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [array];
    cvta.to.global.u64 %rd2, %rd1;
    ld.param.u32 %r1, [length];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mad.lo.s32 %r5, %r3, %r4, %r2;
    mul.wide.s32 %rd3, %r5, 4;
    add.s64 %rd4, %rd2, %rd3;
    cvta.local.u64 %rd5, frame;
    setp.ge.s32 %p1, %r5, %r1;
    @%p1 bra $end;
    BODY
$end:
    ret;
}
"""
DOUBLE_IT = "ld.global.f32 %f1, [%rd4]; fma.rn.f32 %f2, %f1, 0f40000000, 0f3F800000; st.global.f32 [%rd4], %f2;"


def run_tiny(body: str, tmp_path, array, length: int | None = None, **options):
    """Runs BODY for every entry of an array, at %rd4; it may use the array and 16 bytes of local memory."""
    binary = Program(KERNEL.replace("BODY", body.replace("; ", ";\n"))).build(tmp_path)
    parameters = ctypes.c_uint64(array.ctypes.data), ctypes.c_uint32(len(array) if length is None else length)
    binary.launch(
        [ctypes.addressof(p) for p in parameters],
        threads=len(array),
        ranges=[(array.ctypes.data, array.ctypes.data + array.nbytes)],
        options=Options(**{"block": 4} | options),
    )
    return array


@pytest.mark.parametrize("options", [{}, {"block": 1}, {"block": 64}, {"surplus_blocks": 3, "fill": 0}])
def test_every_thread_runs_once(tmp_path, options):
    array = np.arange(10, dtype=np.float32)
    assert (run_tiny(DOUBLE_IT, tmp_path, array, **options) == 2 * np.arange(10) + 1).all()


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("ld.global.v2.f32 {%f1, %f2}, [%rd2+4];", "misaligned: .*8 bytes"),
        ("ld.f32 %f1, [%rd4+2];", "misaligned: .*4 bytes"),
        ("ld.local.v4.f32 {%f1, %f2, %f3, %f4}, [frame];", "misaligned: .*16 bytes"),  # it is aligned to 4 bytes only
        ("ld.global.f32 %f1, [%rd2+40];", "outside the arrays .*ld.global.f32"),
        ("st.global.f32 [%rd2+-4], 0f00000000;", "outside the arrays"),
        ("ld.local.f32 %f1, [frame+16];", "outside the local frame"),
        ("st.f32 [%rd5+-4], 0f00000000;", "outside the local frame"),
        ("ld.global.f32 %f1, [%rd5];", "outside the arrays"),  # an address of another space
        ("ld.local.f32 %f1, [%rd4];", "outside the local frame"),
        ("$again: bra $again;", "a thread does not end"),
    ],
)
def test_faults_are_caught(tmp_path, body, fault):
    body = body.replace(": ", ":\n")
    with pytest.raises(Fault, match=fault):
        run_tiny(body, tmp_path, np.zeros(10, np.float32), budget=1000)


def test_threads_beyond_the_array_are_caught(tmp_path):
    with pytest.raises(Fault, match="outside the arrays of the launch: block 2, thread 2, 4 bytes"):
        run_tiny(DOUBLE_IT, tmp_path, np.zeros(10, np.float32), length=11)


@pytest.mark.parametrize("body", ["shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1;", "add.ftz.f32 %f1, %f2, %f3;", "oops;"])
def test_what_is_not_modelled_is_refused(tmp_path, body):
    with pytest.raises(NotImplementedError, match=body[:4]):
        run_tiny(body, tmp_path, np.zeros(1, np.float32))


def test_access_beyond_a_parameter_is_refused(tmp_path):
    with pytest.raises(NotImplementedError, match="length"):
        run_tiny("ld.param.u64 %rd1, [length];", tmp_path, np.zeros(1, np.float32))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("shl.b32 %r1, 1, 33;", 0),  # C leaves it undefined
        ("shr.s32 %r1, -8, 40;", -1),
        ("mul.hi.s32 %r1, -2147483648, 4;", -2),
        ("div.s32 %r1, -7, 2;", -3),
        ("rem.s32 %r1, -7, 2;", -1),
        ("bfe.u32 %r1, 240, 4, 4;", 15),
        ("cvt.rni.s32.f32 %r1, 0f40200000;", 2),  # 2.5 to even
        ("cvt.rzi.s32.f32 %r1, 0f7F800000;", 2**31 - 1),  # infinity
        ("setp.ne.f32 %p1, 0f7FC00000, 0f00000000; selp.s32 %r1, 1, 0, %p1;", 0),  # NaN
        ("setp.neu.f32 %p1, 0f7FC00000, 0f00000000; selp.s32 %r1, 1, 0, %p1;", 1),
        ("min.f32 %f1, 0f7FC00000, 0f40400000; cvt.rni.s32.f32 %r1, %f1;", 3),  # the number, not NaN
        ("mov.b64 %rd7, {%r2, %r4}; shr.u64 %rd7, %rd7, 32; cvt.u32.u64 %r1, %rd7;", 4),
        ("add.cc.u32 %r1, -1, 1; addc.u32 %r1, 5, 0;", 6),
        ("st.local.u32 [frame+8], 77; ld.u32 %r1, [%rd5+8];", 77),
    ],
)
def test_instructions_are_those_of_a_gpu(tmp_path, body, expected):
    (found,) = run_tiny(f"{body} st.global.u32 [%rd4], %r1;", tmp_path, np.zeros(1, np.int32))
    assert found == expected


def test_mutants_are_those_that_a_launch_chooses(tmp_path):
    text = KERNEL.replace("BODY", DOUBLE_IT.replace("; ", ";\n"))
    (number,) = [k for k, s in enumerate(Program(text).module.statements) if s.startswith("fma")]
    kind, mutant = mutate(Program(text).module.statements[number])
    assert kind == "fma without addend"
    binary = Program(text, {number: mutant}).build(tmp_path)
    array = np.ones(1, np.float32)
    parameters = ctypes.c_uint64(array.ctypes.data), ctypes.c_uint32(1)
    for options, expected in ((Options(), 3.0), (Options(mutant=number), 6.0)):
        binary.launch(
            [ctypes.addressof(p) for p in parameters], threads=1,
            ranges=[(array.ctypes.data, array.ctypes.data + 4)], options=options,
        )  # fmt: skip
        assert array[0] == expected


# -- slow: every kernel


def everything(sim: wa.Simulator, scene: str, steps: int) -> dict[str, np.ndarray]:
    """States, gradients by the start, the controls and all parameters, and what the queries say."""
    q, qd, u = inputs(scene, sim.model, sim.dtype)
    params = {name: value.clone().requires_grad_() for name, value in sim.params.items()}
    leaves = {"q": q.requires_grad_(), "qd": qd.requires_grad_(), "u": u[:steps].requires_grad_(), **params}
    qs, qds = sim.rollout(q, qd, leaves["u"], params=params)
    arrays = {"qs": qs.detach().numpy(), "qds": qds.detach().numpy(), "dropped": sim.dropped_contacts.numpy()}
    gradients(arrays, "rollout", (qs * weights(qs, 1)).sum() + (qds * weights(qds, 2)).sum() * sim.dt, leaves)
    return arrays | queries(sim, leaves, params, "")


def largest(x: np.ndarray) -> float:
    return float(np.abs(x[np.isfinite(x)]).max(initial=0.0))


def disagreement(found: dict[str, np.ndarray], exact: dict[str, np.ndarray], name: str) -> float:
    """Largest difference over the largest entry; for zeros, over what they are rounded from."""
    size = largest(exact[name])
    loss, is_gradient, _ = name.rpartition("/d_")
    if name == "/residual":  # the last change of an impulse
        size = max(size, largest(exact["/contacts/impulses"]))
    elif is_gradient:
        most = max(largest(x) for key, x in exact.items() if key.startswith(loss + is_gradient))
        size = most if size < ZERO * most else size
    x, y = found[name].astype(float), exact[name].astype(float)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    return 0.0 if same.all() else float(np.abs(x[~same] - y[~same]).max() / max(size, 1e-300))


def show(title: str, errors: dict, capsys) -> None:
    """Of states, of gradients and of the rest, the array that differs most."""
    kinds: dict[str, list[str]] = {"qs": [], "qds": [], "gradient": [], "other": []}
    for name in errors:
        kinds["gradient" if "/d_" in name else name if name in kinds else "other"].append(name)
    worst = [max(names, key=lambda name: errors[name]) for names in kinds.values()]
    figures = [f"{name} {' and '.join(f'{x:.1e}' for x in np.atleast_1d(errors[name]))}" for name in worst]
    with capsys.disabled():
        print(f"\n{title}: {', '.join(figures)}")


KERNELS = {"rollout", "contacts", "forward_dynamics", "link_poses"}
KERNELS |= {f"{name}_adjoint" for name in KERNELS} | {"jacobians", "diagnostics", "mass_matrix"}


@pytest.fixture(scope="module")
def device() -> Device:
    """One for all tests, which share kernels."""
    return Device()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scene", "contact_time"), [*((scene, "step") for scene in SCENES), ("laikago_feet", "impact"), ("ant", "impact")]
)
def test_every_kernel_agrees_with_the_cpu_in_float64(device, scene, contact_time, capsys):
    sim = simulator(scene, ENVS, "float64", contact_time)
    on_cpu = everything(sim, scene, steps=50)
    device.binaries.clear()
    with emulated(device):
        on_cuda = everything(sim, scene, steps=50)
    assert set(device.binaries) == KERNELS
    assert set(on_cpu) == set(on_cuda)
    errors = {name: disagreement(on_cuda, on_cpu, name) for name in on_cpu}
    show(f"{scene}, float64, differences between CUDA and CPU", errors, capsys)
    assert not {
        name: error for name, error in errors.items() if not error <= (DOUBLE if contact_time == "step" else IMPACT)
    }


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
def test_every_kernel_agrees_with_the_cpu_in_float32(device, scene, capsys):
    """Both are compared with float64: CUDA may be no farther from it than the CPU, times a factor for luck.

    How much rounding grows depends on the scene, and on whether a contact begins one step earlier.
    """
    exact = everything(simulator(scene, ENVS, "float64"), scene, steps=20)
    sim = simulator(scene, ENVS, "float32")
    on_cpu = everything(sim, scene, steps=20)
    device.binaries.clear()
    with emulated(device):
        on_cuda = everything(sim, scene, steps=20)
    assert set(device.binaries) == KERNELS
    errors = {name: (disagreement(on_cuda, exact, name), disagreement(on_cpu, exact, name)) for name in on_cpu}
    show(f"{scene}, float32, differences of CUDA and CPU from float64", errors, capsys)
    assert not {name: (x, y) for name, (x, y) in errors.items() if not x <= LUCK * y + SINGLE}


def everyday(sim: wa.Simulator, scene: str, steps: int) -> dict[str, np.ndarray]:
    """The kernels that `everything` does not launch: wrenches, inverse dynamics, velocities, Jacobians of frames."""
    q, qd, u = inputs(scene, sim.model, sim.dtype)
    names = ("mass", "com", "inertia", "joint_pos", "joint_quat", "armature", "gravity")
    params = {name: sim.params[name].clone().requires_grad_() for name in names}
    wrench = weights(q.new_empty(steps, ENVS, sim.model.num_links, 6), 3)
    leaves = {"q": q.requires_grad_(), "qd": qd.requires_grad_(), "wrench": wrench.requires_grad_(), **params}
    qs, qds = sim.rollout(q, qd, u[:steps], wrench=wrench, params=params)
    arrays = {"qs": qs.detach().numpy(), "qds": qds.detach().numpy()}
    asked = {
        "wrench": torch.cat([qs.flatten(), sim.dt * qds.flatten()]),
        "inverse": sim.inverse_dynamics(q, qd, weights(qd, 4), params=params),
        "mass": sim.mass_matrix(q, params=params),
        "velocities": sim.frame_velocities(q, qd, params=params),
    }
    for name, found in asked.items():
        arrays[name] = found.detach().numpy()
        gradients(arrays, name, (found * weights(found, 5)).sum(), leaves)
    with torch.no_grad():
        arrays["frame_jacobians"] = sim.frame_jacobians(q.detach()).numpy()
    return arrays


EVERYDAY = {"rollout", "inverse_dynamics", "mass_matrix", "link_velocities", "link_poses"}
EVERYDAY |= {f"{name}_adjoint" for name in EVERYDAY} | {"frame_jacobians"}


@pytest.mark.slow
def test_kernels_of_everyday_use_agree_with_the_cpu(device, capsys):
    sim = simulator("machine", ENVS, "float64")
    on_cpu = everyday(sim, "machine", steps=20)
    device.binaries.clear()
    with emulated(device):
        on_cuda = everyday(sim, "machine", steps=20)
    assert set(device.binaries) == EVERYDAY
    errors = {name: disagreement(on_cuda, on_cpu, name) for name in on_cpu}
    show("machine, everyday use, float64, differences between CUDA and CPU", errors, capsys)
    assert not {name: error for name, error in errors.items() if not error <= DOUBLE}


# -- slow: what a launch may choose


@pytest.mark.slow
@pytest.mark.parametrize(("num_envs", "contact_time"), [(8, "step"), (37, "step"), (37, "impact")])
def test_bits_do_not_depend_on_the_launch(device, num_envs, contact_time):
    """Blocks, surplus threads, threads that take several environments, what memory held, where the frame begins."""
    sim = simulator("laikago_feet", num_envs, "float32", contact_time)
    state = pushed(sim, 20)

    def states_and_gradients(**options):
        q, qd, u = (x.clone().requires_grad_() for x in state)
        with patch.object(device, "options", replace(device.options, **options)), emulated(device):
            qs, qds = sim.rollout(q, qd, u)
            (qs[-1].sum() + qds[-1].square().sum()).backward()
        return qs.detach(), qds.detach(), q.grad, qd.grad, u.grad

    usual = states_and_gradients()
    for options in (
        {"fill": 0x00}, {"fill": 0x7F}, {"fill": 0xCD}, {"block": 1}, {"block": 32}, {"surplus_blocks": 2},
        {"block": 4, "grid": 1}, {"block": 16, "grid": 2}, {"shift": 0}, {"shift": 3},
    ):  # fmt: skip
        other = states_and_gradients(**options)
        assert all(torch.equal(x, y) for x, y in zip(usual, other)), options


# -- slow: whether a mistake would be noticed


def run_mutants(dtype: str, number: int) -> dict[int, tuple[str, str, str, str]]:
    """Of random mistakes in the rollout that were run: kind, how it was noticed, the statement and its mutant."""
    mutants: dict[int, tuple[str, str]] = {}

    def with_mistakes(text: str) -> Program:
        mutants.update(sample(text, number))
        return Program(text, {k: mutant for k, (_, mutant) in mutants.items()})

    sim = simulator("laikago_feet", 4, dtype)
    state = pushed(sim, 10)
    on_cpu = [x.numpy() for x in sim.rollout(*state)]
    device = Device(count=True, make_program=with_mistakes, budget=10**6)

    def states():
        with emulated(device):
            return [x.numpy() for x in sim.rollout(*state)]

    right = states()

    def notice() -> str:
        try:
            found = states()
        except Fault as fault:
            return str(fault).partition(":")[0]
        if all(np.array_equal(x, y) for x, y in zip(found, right)):
            return "same bits"
        errors = [difference(x, y) for x, y in zip(found, on_cpu)]
        return "below the tolerance" if all(e <= t for e, t in zip(errors, TOLERANCES[dtype])) else "other results"

    assert notice() == "same bits"
    (binary,) = device.binaries.values()
    made, statements = binary.program.translation, binary.program.module.statements
    executed = [k for k in mutants if binary.blocks[made.block_of[k]]]
    found = {}
    for k in executed:
        device.options = replace(device.options, mutant=k)
        found[k] = (mutants[k][0], notice(), statements[k], mutants[k][1])
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "share"), [("float32", 0.85), ("float64", 0.98)])
def test_mistakes_are_noticed(own_kernels, dtype, share, capsys):
    """Of those that change a bit of the result, so many; the others add a zero, or never decide anything here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of robots that diverge
        found = run_mutants(dtype, 300)
    counts = Counter(how for _, how, _, _ in found.values())
    with capsys.disabled():
        print(f"\n{dtype}: {len(found)} of 300 mistakes were run: {dict(counts)}")
    effective = len(found) - counts["same bits"]
    assert effective > 100
    assert 1 - counts["below the tolerance"] / effective >= share
