// Ceres' jets: forward mode. Every step gives its Jacobian, which is kept and multiplied from the end.
#include <ceres/jet.h>

#include "driver.hpp"

constexpr int MOST = 49;  // state and control of the Laikago: 19 + 18 + 12
using Jet = ceres::Jet<double, MOST>;
namespace ceres {  // where the compiler looks for functions of its numbers
inline double value(const Jet<double, MOST>& x) { return x.a; }
}  // namespace ceres

int main(int argc, char** argv) {
    Problem problem(argc, argv);
    const int ns = problem.model.state(), nu = problem.model.drives;
    if (ns + nu > MOST) throw std::runtime_error("the model is too large for MOST");
    double before = peak_mb(), start = seconds();
    std::vector<double> last = problem.state, jacobians;
    Step<Jet> step(problem.model);
    for (int k = 0; k < problem.steps; ++k) {
        std::vector<Jet> state(ns), control(nu);
        for (int i = 0; i < ns; ++i) state[i] = Jet(last[i], i);
        for (int i = 0; i < nu; ++i) control[i] = Jet(problem.control[i], ns + i);
        step(state, control.data());
        for (int i = 0; i < ns; ++i) {
            last[i] = state[i].a;
            jacobians.insert(jacobians.end(), state[i].v.data(), state[i].v.data() + ns + nu);
        }
    }
    double middle = seconds();
    std::vector<double> bar = problem.weight, gradient(ns + problem.steps * nu), before_bar(ns + nu);
    for (int k = problem.steps - 1; k >= 0; --k) {
        const double* J = &jacobians[static_cast<std::size_t>(k) * ns * (ns + nu)];
        std::fill(before_bar.begin(), before_bar.end(), 0.0);
        for (int i = 0; i < ns; ++i)
            for (int j = 0; j < ns + nu; ++j) before_bar[j] += bar[i] * J[i * (ns + nu) + j];
        std::copy(before_bar.begin(), before_bar.begin() + ns, bar.begin());
        std::copy(before_bar.begin() + ns, before_bar.end(), gradient.begin() + ns + k * nu);
    }
    std::copy(bar.begin(), bar.end(), gradient.begin());
    answer(problem, last, gradient, middle - start, seconds() - middle, before);
}
