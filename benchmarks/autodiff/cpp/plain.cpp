// The step with plain doubles: the forward reference.
#include "driver.hpp"

Found forward(const Problem& problem) {
    Found found{};
    const double start = seconds();
    problem.loss(problem.inputs(), found.last);
    found.forward = seconds() - start;
    return found;
}

int main(int argc, char** argv) { measure(Problem(argc, argv), forward); }
