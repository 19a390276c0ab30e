// What all drivers share: reading the problem, memory, and the answer as JSON.
//
//     driver MODEL STEPS GRADIENT_FILE
//
// The problem: from the state in MODEL.state, with the controls in MODEL.control held, the loss is a weighted sum of the
// last state. GRADIENT_FILE gets its derivatives with respect to the initial state and to the control of every step.

#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "step.hpp"

struct Problem {
    Model model;
    int steps;
    std::vector<double> state, control, weight;  // control: of one step
    std::string gradient_file;

    Problem(int argc, char** argv) : model(argc > 3 ? argv[1] : ""), steps(std::atoi(argv[2])), gradient_file(argv[3]) {
        state.resize(model.state()), control.resize(model.drives), weight.resize(model.state());
        std::ifstream in(std::string(argv[1]) + ".state");
        for (auto* values : {&state, &control, &weight})
            for (double& x : *values) in >> x;
        if (!in) throw std::runtime_error("the state file ends too early");
    }
};

inline double seconds() {
    using clock = std::chrono::steady_clock;
    return std::chrono::duration<double>(clock::now().time_since_epoch()).count();
}

inline double peak_mb() {  // of this process so far
    std::ifstream in("/proc/self/status");
    std::string word;
    while (in >> word)
        if (word == "VmHWM:") {
            double kb;
            in >> kb;
            return kb / 1024.0;
        }
    return 0.0;
}

inline void answer(const Problem& problem, const std::vector<double>& last, const std::vector<double>& gradient,
                   double forward, double backward, double before_mb, double disk_mb = 0.0) {
    std::ofstream out(problem.gradient_file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(last.data()), 8 * last.size());
    out.write(reinterpret_cast<const char*>(gradient.data()), 8 * gradient.size());
    std::printf("{\"forward_s\": %.6g, \"backward_s\": %.6g, \"before_mb\": %.3f, \"peak_mb\": %.3f, \"disk_mb\": %.3f}\n",
                forward, backward, before_mb, peak_mb(), disk_mb);
}
