"""Sliding distance of a box for 16 friction values, one per environment, compared with v^2 / (2 mu g)."""

import torch

import warp_articulated as wa

SPEED, DT = 1.0, 1e-3


def main() -> float:
    sim = wa.Simulator(wa.load("box"), num_envs=16, dt=DT, dtype="float64", device="cpu")
    friction = torch.linspace(0.2, 1.0, 16, dtype=torch.float64)
    q, qd = sim.initial_state()
    qd[:, 0] = SPEED
    qs, _ = sim.rollout(q, qd, torch.zeros(700, 16, 0, dtype=torch.float64), params={"friction": friction})
    distance = qs[-1, :, 0] - qs[0, :, 0]
    expected = SPEED**2 / (2 * friction * 9.81)
    for mu, ours, theory in zip(friction, distance, expected, strict=True):
        print(f"friction {mu:.2f}: {ours:.4f} m, closed form {theory:.4f} m")
    return float((distance - expected).abs().max())


if __name__ == "__main__":
    main()
