// ADOL-C: one tape of all steps, reversed once.
#include <adolc/adolc.h>

#include <filesystem>

inline double value(const adouble& x) { return x.value(); }

#include "driver.hpp"

Found differentiate(const Problem& problem) {
    const double start = seconds();
    Found found;
    const std::vector<double> point = problem.inputs();
    const int count = static_cast<int>(point.size());
    double loss_value, weight = 1.0;
    {
        trace_on(1, 1);
        std::vector<adouble> inputs(count);
        for (int k = 0; k < count; ++k) inputs[k] <<= point[k];
        adouble loss = problem.loss(inputs, found.last);
        loss >>= loss_value;
        trace_off();
    }
    const double middle = seconds();
    found.gradient.resize(count);
    reverse(1, 1, count, 0, &weight, found.gradient.data());  // the taylors were kept by trace_on(1, 1)
    found.forward = middle - start, found.backward = seconds() - middle;
    for (const auto& file : std::filesystem::directory_iterator("."))  // what did not fit into ADOL-C's buffers
        if (file.path().filename().string().rfind("ADOLC-", 0) == 0) found.disk_mb += file.file_size() / 1e6;
    return found;
}

int main(int argc, char** argv) { measure(Problem(argc, argv), differentiate); }
