"""The tables of benchmarks/learning/learning.py, from runs that were made up."""

import pytest

from learning.experiments import EXPERIMENTS
from learning.report import report


def run(name, seed, *points):
    """points: steps, seconds, return of every evaluation."""
    assert name in EXPERIMENTS
    return {
        "name": name,
        "seed": seed,
        "rows": [dict(zip(("steps", "seconds", "return"), p, strict=True)) for p in points],
    }


def cells(table, *first):
    """Of the line that begins with these."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    (found,) = [line[len(first) :] for line in lines if line[: len(first)] == list(first)]
    return found


def test_a_share_is_of_the_last_quarter_and_its_range_is_that_of_the_seeds():
    points = [(k, 10.0 * k, 1.0) for k in range(1, 7)]
    made = report(
        {"runs": [run("pendulum 2 ppo", s, *points, (7, 70.0, x), (8, 80.0, 2.0)) for s, x in ((0, 2.0), (1, 1.0))]}
    )
    # two links earn 2 at most; the last two of eight evaluations are 2 and 2, or 1 and 2
    assert cells(made["pendulum"], "PPO")[:2] == ["-", "0.88 (0.75..1.00)"]
    assert cells(made["pendulum_best"], "PPO")[1] == "1.00 (1.00..1.00)"


@pytest.mark.parametrize(
    ("returns", "said"), [((2.0, 1.0, 2.0, 2.0), "3.0"), ((2.0, 2.0, 2.0, 1.0), "never"), ((2.0,) * 4, "1.0")]
)
def test_a_chain_is_solved_when_no_later_evaluation_is_below(returns, said):
    points = [(k, 60.0 * k, x) for k, x in enumerate(returns, 1)]
    assert cells(report({"runs": [run("pendulum 2 sac", 0, *points)]})["pendulum_time"], "SAC")[1] == said


def test_runs_with_and_without_samples_are_compared_at_equal_true_steps():
    long = run("samples sac none", 0, *((1000 * k, 30.0 * k, 100.0 * k) for k in range(1, 9)))
    short = run("samples sac true", 0, *((1000 * k, 60.0 * k, 200.0 * k) for k in range(1, 5)))
    other = run("samples mbpo none", 0, (500, 1.0, 7.0))
    table = report({"runs": [long, short, other]})["samples"]
    assert cells(table, "SAC", "none") == ["1", "8.0", "400 at 4 thousand", "750", "800"]
    assert cells(table, "SAC", "true") == ["1", "4.0", "800 at 4 thousand", "800", "800"]
    assert cells(table, "MBPO", "none")[2] == "7 at 0 thousand"  # of its own runs
