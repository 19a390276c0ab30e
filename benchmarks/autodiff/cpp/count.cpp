// What a step of the simulator costs in operations and memory accesses: the step with numbers that count.
//
//     count MODEL SWEEPS STEPS        STEPS to settle, then STEPS that are counted; MODEL.state as for the drivers
//
// A named number that is used counts as one read, an assignment as one write. Intermediate results of an expression,
// and the model's own numbers, which all environments share, count as neither.

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace tally {
long adds, multiplies, divisions, roots, sines, reads, writes;
void clear() { adds = multiplies = divisions = roots = sines = reads = writes = 0; }
}  // namespace tally

struct Counted {
    double x = 0.0;

    Counted() = default;
    Counted(double value) : x(value) {}
    Counted(const Counted& other) : x(other.x) { ++tally::reads; }
    Counted(Counted&& other) : x(other.x) {}
    Counted& operator=(const Counted& other) { return ++tally::reads, ++tally::writes, x = other.x, *this; }
    Counted& operator=(Counted&& other) { return ++tally::writes, x = other.x, *this; }
};

inline double value(const Counted& a) { return a.x; }

// The number behind an operand: read from memory if it has a name.
inline double use(const Counted& a) { return ++tally::reads, a.x; }
inline double use(Counted&& a) { return a.x; }
inline double use(double a) { return a; }

template <class A> constexpr bool counts = std::is_same_v<std::decay_t<A>, Counted>;
template <class A, class B> using Result =
    std::enable_if_t<(counts<A> || counts<B>) && std::is_convertible_v<A, Counted> && std::is_convertible_v<B, Counted>, Counted>;

#define OPERATOR(symbol, counter)                                                          \
    template <class A, class B> Result<A, B> operator symbol(A&& a, B&& b) {               \
        ++tally::counter;                                                                  \
        return Counted(use(std::forward<A>(a)) symbol use(std::forward<B>(b)));            \
    }                                                                                      \
    template <class B> Counted& operator symbol##=(Counted& a, B&& b) {                    \
        ++tally::counter, ++tally::writes;                                                 \
        a.x = use(a) symbol use(std::forward<B>(b));                                       \
        return a;                                                                          \
    }
OPERATOR(+, adds)
OPERATOR(-, adds)
OPERATOR(*, multiplies)
OPERATOR(/, divisions)

#include "step.hpp"

inline Counted operator-(const Counted& a) { return Counted(-use(a)); }  // a sign costs nothing
inline Counted sqrt(const Counted& a) { return ++tally::roots, Counted(std::sqrt(use(a))); }
inline Counted sin(const Counted& a) { return ++tally::sines, Counted(std::sin(use(a))); }
inline Counted cos(const Counted& a) { return ++tally::sines, Counted(std::cos(use(a))); }

int main(int argc, char** argv) {
    if (argc != 4) return std::fprintf(stderr, "count MODEL SWEEPS STEPS\n"), 1;
    Model model(argv[1]);
    model.iterations = std::atoi(argv[2]);
    const int steps = std::atoi(argv[3]);
    std::vector<Counted> state(model.state()), control(model.drives);
    std::ifstream in(std::string(argv[1]) + ".state");
    for (auto* values : {&state, &control})
        for (Counted& number : *values) in >> number.x;
    if (!in) return std::fprintf(stderr, "the state file ends too early\n"), 1;
    Step<Counted> step(model);
    for (int k = 0; k < steps; ++k) step(state, control.data());
    tally::clear();
    for (int k = 0; k < steps; ++k) step(state, control.data());
    double share = 1.0 / steps;
    std::printf("{\"adds\": %.6g, \"multiplies\": %.6g, \"divisions\": %.6g, \"roots\": %.6g, \"sines\": %.6g, "
                "\"reads\": %.6g, \"writes\": %.6g, \"height\": %.6g}\n",
                share * tally::adds, share * tally::multiplies, share * tally::divisions, share * tally::roots,
                share * tally::sines, share * tally::reads, share * tally::writes, state[2].x);
}
