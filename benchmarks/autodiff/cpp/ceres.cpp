// Ceres' jets: forward mode. Every step gives its Jacobian, which is kept and multiplied from the end.
#include <ceres/jet.h>

#include "driver.hpp"

constexpr int MOST = 49;  // state and control of the Laikago: 19 + 18 + 12
using Jet = ceres::Jet<double, MOST>;
namespace ceres {  // where the compiler looks for functions of its numbers
inline double value(const Jet<double, MOST>& x) { return x.a; }
}  // namespace ceres

Found differentiate(const Problem& problem) {
    const int ns = problem.model.state(), nu = problem.model.drives, robots = problem.robots;
    if (ns + nu > MOST) throw std::runtime_error("the model is too large for MOST");
    const double start = seconds();
    Found found;
    for (int r = 0; r < robots; ++r) found.last.insert(found.last.end(), problem.state.begin(), problem.state.end());
    std::vector<double> jacobians;
    jacobians.reserve(static_cast<std::size_t>(problem.steps) * robots * ns * (ns + nu));
    Step<Jet> step(problem.model);
    for (int k = 0; k < problem.steps * robots; ++k) {
        const int robot = k % robots;
        double* last = &found.last[robot * ns];
        std::vector<Jet> state(ns), control(nu);
        for (int i = 0; i < ns; ++i) state[i] = Jet(last[i], i);
        for (int i = 0; i < nu; ++i) control[i] = Jet(problem.control[robot * nu + i], ns + i);
        step(state, control.data());
        for (int i = 0; i < ns; ++i) {
            last[i] = state[i].a;
            jacobians.insert(jacobians.end(), state[i].v.data(), state[i].v.data() + ns + nu);
        }
    }
    const double middle = seconds();
    found.gradient.resize(robots * (ns + problem.steps * nu));
    for (int r = 0; r < robots; ++r) std::copy(problem.weight.begin(), problem.weight.end(), &found.gradient[r * ns]);
    std::vector<double> bar(ns + nu);
    for (int k = problem.steps * robots - 1; k >= 0; --k) {
        const double* J = &jacobians[static_cast<std::size_t>(k) * ns * (ns + nu)];
        double* state_bar = &found.gradient[k % robots * ns];
        std::fill(bar.begin(), bar.end(), 0.0);
        for (int i = 0; i < ns; ++i)
            for (int j = 0; j < ns + nu; ++j) bar[j] += state_bar[i] * J[i * (ns + nu) + j];
        std::copy(bar.begin(), bar.begin() + ns, state_bar);
        std::copy(bar.begin() + ns, bar.end(), &found.gradient[robots * ns + k * nu]);
    }
    found.forward = middle - start, found.backward = seconds() - middle;
    return found;
}

int main(int argc, char** argv) { measure(Problem(argc, argv), differentiate); }
