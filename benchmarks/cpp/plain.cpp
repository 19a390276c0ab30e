// The step with plain doubles: the forward reference.
#include "driver.hpp"

int main(int argc, char** argv) {
    Problem problem(argc, argv);
    Step<double> step(problem.model);
    std::vector<double> state = problem.state;
    double before = peak_mb(), start = seconds();
    for (int k = 0; k < problem.steps; ++k) step(state, problem.control.data());
    answer(problem, state, {}, seconds() - start, 0.0, before);
}
