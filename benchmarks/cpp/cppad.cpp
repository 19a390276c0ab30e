// CppAD: one tape of all steps, reversed once.
#include <iostream>
#include <type_traits>

// Debian has CppAD's headers in an R package only, where they lean on some names of their host.
#define Rcout std::cout
#define CSKIP(...) __VA_ARGS__
#define TMB_EXTERN
template <class T> using isDouble = std::is_same<T, double>;

#include <cppad/cppad.hpp>

#include "driver.hpp"

using AD = CppAD::AD<double>;
namespace CppAD {  // where the compiler looks for functions of its numbers
inline double value(const AD<double>& x) { return Value(Var2Par(x)); }
}  // namespace CppAD

int main(int argc, char** argv) {
    Problem problem(argc, argv);
    const int ns = problem.model.state(), nu = problem.model.drives;
    double before = peak_mb(), start = seconds();
    std::vector<AD> inputs(problem.state.begin(), problem.state.end());
    for (int k = 0; k < problem.steps; ++k) inputs.insert(inputs.end(), problem.control.begin(), problem.control.end());
    CppAD::Independent(inputs);
    std::vector<AD> state(inputs.begin(), inputs.begin() + ns);
    Step<AD> step(problem.model);
    for (int k = 0; k < problem.steps; ++k) step(state, &inputs[ns + k * nu]);
    std::vector<double> last(ns);
    std::vector<AD> loss(1, AD(0.0));
    for (int k = 0; k < ns; ++k) last[k] = CppAD::value(state[k]), loss[0] += problem.weight[k] * state[k];
    CppAD::ADFun<double> tape(inputs, loss);  // also replays the tape once, which leaves the values that Reverse needs
    double middle = seconds();
    auto gradient = tape.Reverse(1, std::vector<double>{1.0});
    answer(problem, last, gradient, middle - start, seconds() - middle, before);
}
