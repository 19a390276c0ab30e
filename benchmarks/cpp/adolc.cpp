// ADOL-C: one tape of all steps, reversed once.
#include <adolc/adolc.h>

#include <filesystem>

#include "driver.hpp"

inline double value(const adouble& x) { return x.value(); }

int main(int argc, char** argv) {
    Problem problem(argc, argv);
    const int ns = problem.model.state(), nu = problem.model.drives, count = ns + problem.steps * nu;
    double before = peak_mb(), start = seconds(), loss_value;
    std::vector<double> point(problem.state), last(ns), gradient_values(count);
    for (int k = 0; k < problem.steps; ++k) point.insert(point.end(), problem.control.begin(), problem.control.end());
    {
        trace_on(1, 1);
        std::vector<adouble> inputs(count);
        for (int k = 0; k < count; ++k) inputs[k] <<= point[k];
        std::vector<adouble> state(inputs.begin(), inputs.begin() + ns);
        Step<adouble> step(problem.model);
        for (int k = 0; k < problem.steps; ++k) step(state, &inputs[ns + k * nu]);
        adouble loss = 0.0;
        for (int k = 0; k < ns; ++k) last[k] = value(state[k]), loss += problem.weight[k] * state[k];
        loss >>= loss_value;
        trace_off();
    }
    double middle = seconds(), weight = 1.0;
    reverse(1, 1, count, 0, &weight, gradient_values.data());  // the taylors were kept by trace_on(1, 1)
    double backward = seconds() - middle, disk = 0.0;
    for (const auto& file : std::filesystem::directory_iterator("."))  // what did not fit into ADOL-C's buffers
        if (file.path().filename().string().rfind("ADOLC-", 0) == 0) disk += file.file_size() / 1e6;
    answer(problem, last, gradient_values, middle - start, backward, before, disk);
}
