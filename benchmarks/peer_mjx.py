"""MJX: MuJoCo in JAX. `--variant forward` differentiates in forward mode."""

import jax
import mujoco
from mujoco import mjx
from peer_common import main
from peer_jax import JaxEngine


class MJX(JaxEngine):
    package = "mujoco-mjx"
    simulated = "reduced coordinates, semi-implicit Euler, explicit drives"

    def __init__(self, scene, options):
        super().__init__(scene, options)
        self.forward = options.variant == "forward"
        # its solver is a while loop, which JAX cannot reverse, unless it is told to do one iteration
        once = options.gradient and not self.forward
        self.name = "MJX, forward mode" if self.forward else "MJX, 1 iteration" if once else "MJX"
        self.gradient_method = "jax.jacfwd, 15 tangents" if self.forward else "jax.grad"
        count = "one iteration" if once else "warm-started"
        self.contact = f"soft, MuJoCo's defaults, Newton, {count}"
        self.mj = mujoco.MjModel.from_xml_path(str(scene.mjcf))
        if once:
            self.mj.opt.iterations, self.mj.opt.ls_iterations = 1, 8
        self.m = mjx.put_model(self.mj)
        self.data = mjx.make_data(self.m)

    def mass(self):
        return self.mj.body_mass.sum()

    def init(self, q, qd, targets):
        return self.data.replace(qpos=q, qvel=qd, ctrl=targets)

    def step(self, state, targets):
        return mjx.step(self.m, state)

    def parts(self, state):
        return state.qpos, state.qvel

    def differential(self, loss):
        return (jax.jacfwd if self.forward else jax.grad)(loss, argnums=(0, 1))


if __name__ == "__main__":
    main(MJX)
