// CppAD: one tape of all steps, reversed once.
#include <iostream>
#include <type_traits>

// Debian has CppAD's headers in an R package only, where they need some names of their host.
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

Found differentiate(const Problem& problem) {
    const double start = seconds();
    Found found;
    const std::vector<double> point = problem.inputs();
    std::vector<AD> inputs(point.begin(), point.end()), loss(1);
    CppAD::Independent(inputs);
    loss[0] = problem.loss(inputs, found.last);
    CppAD::ADFun<double> tape(inputs, loss);  // also replays the tape once, which leaves the values that Reverse needs
    const double middle = seconds();
    found.gradient = tape.Reverse(1, std::vector<double>{1.0});
    found.forward = middle - start, found.backward = seconds() - middle;
    return found;
}

int main(int argc, char** argv) { measure(Problem(argc, argv), differentiate); }
