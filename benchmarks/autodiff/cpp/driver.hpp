// What all drivers share: reading the problem, memory, and the answer as JSON.
//
//     driver MODEL STEPS GRADIENT_FILE [ROBOTS]
//
// The problem: from the state in MODEL.state, with the controls there held, the loss is the sum over the robots of a
// weighted sum of the last state. All robots start alike, each has its own controls; they do not touch. GRADIENT_FILE
// gets the last states and the derivatives with respect to the initial states (robot by robot) and to the controls
// (step by step, in a step robot by robot).

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "step.hpp"

struct Problem {
    Model model;
    int steps, robots;
    std::string gradient_file;
    std::vector<double> state, control, weight;  // state and weight: of every robot; control: of one step of each robot

    Problem(int argc, char** argv)
        : model(argc > 3 ? argv[1] : ""), steps(std::atoi(argv[2])), robots(argc > 4 ? std::atoi(argv[4]) : 1),
          gradient_file(argv[3]) {
        state.resize(model.state()), control.resize(robots * model.drives), weight.resize(model.state());
        std::ifstream in(std::string(argv[1]) + ".state");
        for (auto* values : {&state, &control, &weight})
            for (double& x : *values) in >> x;
        if (!in) throw std::runtime_error("the state file ends too early");
    }

    // What is differentiated by, in the order of the gradient.
    std::vector<double> inputs() const {
        std::vector<double> all;
        all.reserve(robots * state.size() + steps * control.size());
        for (int r = 0; r < robots; ++r) all.insert(all.end(), state.begin(), state.end());
        for (int k = 0; k < steps; ++k) all.insert(all.end(), control.begin(), control.end());
        return all;
    }

    // The loss of a tape's numbers from `inputs`; `last` gets the plain last states.
    template <class T> T loss(const std::vector<T>& inputs, std::vector<double>& last) const {
        const int ns = model.state(), nu = model.drives;
        std::vector<std::vector<T>> states;
        for (int r = 0; r < robots; ++r) states.emplace_back(&inputs[r * ns], &inputs[r * ns] + ns);
        Step<T> step(model);
        for (int k = 0; k < steps; ++k)
            for (int r = 0; r < robots; ++r) step(states[r], &inputs[robots * ns + (k * robots + r) * nu]);
        T sum = 0.0;
        last.clear();
        for (const auto& state_r : states)
            for (int k = 0; k < ns; ++k) last.push_back(value(state_r[k])), sum += weight[k] * state_r[k];
        return sum;
    }
};

// What a method found, and the seconds of its two passes.
struct Found {
    std::vector<double> last, gradient;
    double forward, backward, disk_mb = 0.0;
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

// Runs a method: the first time for what it finds and its memory, then again for the least seconds of each pass.
inline void measure(const Problem& problem, Found (*method)(const Problem&)) {
    const double before = peak_mb(), start = seconds();
    Found found = method(problem);
    const double peak = peak_mb();
    std::ofstream out(problem.gradient_file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(found.last.data()), 8 * found.last.size());
    out.write(reinterpret_cast<const char*>(found.gradient.data()), 8 * found.gradient.size());
    double forward = found.forward, backward = found.backward;
    for (int k = 1; k < 5 && seconds() - start < 5.0; ++k) {  // as in methods.py
        Found again = method(problem);
        forward = std::min(forward, again.forward), backward = std::min(backward, again.backward);
    }
    std::printf("{\"forward_s\": %.6g, \"backward_s\": %.6g, \"before_mb\": %.3f, \"peak_mb\": %.3f, \"disk_mb\": %.3f}\n",
                forward, backward, before, peak, found.disk_mb);
}
