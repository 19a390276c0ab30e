// Included by every translation of ptx_translate.py: checks of memory, counters, and the loop over threads.
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// The first line are PTX's special registers. As Thread in ptx_host.py.
struct thread {
    uint32_t tid_x, tid_y, tid_z, ntid_x, ntid_y, ntid_z, ctaid_x, ctaid_y, ctaid_z, nctaid_x, nctaid_y, nctaid_z;
    uint32_t undefined;  // what a register holds before it is written
    uint32_t mutant;     // statement that is replaced; see ptx_translate.py
    uint64_t shared, stack, top, num_frames, ranges, num_ranges, last_range, budget, shift;
    uint64_t fault, fault_statement, fault_address, fault_size;
    uint64_t blocks, accesses, touched, trace, trace_size, trace_used;
};
struct range { uint64_t begin, end; };
extern const struct range constants[];
extern const int num_constants;
static struct range frames[NUM_FRAMES];
static jmp_buf stop;
#define STACK (FRAME_BYTES + 4096)

enum { MISALIGNED = 1, NOT_LOCAL, NOT_GLOBAL, NOT_SHARED, TOO_LONG };
static void fail(struct thread *T, int fault, uint64_t a, int n, int statement) {
    T->fault = fault; T->fault_address = a; T->fault_size = n; T->fault_statement = statement;
    longjmp(stop, 1);
}

// -- arithmetic that C does not have

static inline float u32_to_f(uint32_t x) { float y; memcpy(&y, &x, 4); return y; }
static inline uint32_t f32_to_u(float x) { uint32_t y; memcpy(&y, &x, 4); return y; }
static inline double u64_to_f(uint64_t x) { double y; memcpy(&y, &x, 8); return y; }
static inline uint64_t f64_to_u(double x) { uint64_t y; memcpy(&y, &x, 8); return y; }

// What is out of range is clamped, NaN is 0.
static inline int32_t float_to_s32(double x) { return x != x ? 0 : x < -0x1p31 ? INT32_MIN : x > 0x1p31 - 1 ? INT32_MAX : (int32_t)x; }
static inline uint32_t float_to_u32(double x) { return !(x > 0) ? 0 : x > 0x1p32 - 1 ? UINT32_MAX : (uint32_t)x; }
static inline int64_t float_to_s64(double x) { return x != x ? 0 : x < -0x1p63 ? INT64_MIN : x >= 0x1p63 ? INT64_MAX : (int64_t)x; }
static inline uint64_t float_to_u64(double x) { return !(x > 0) ? 0 : x >= 0x1p64 ? UINT64_MAX : (uint64_t)x; }

static inline uint32_t clz_b32(uint32_t x) { return x ? __builtin_clz(x) : 32; }
static inline uint32_t clz_b64(uint64_t x) { return x ? __builtin_clzll(x) : 64; }
static inline uint32_t popc_b32(uint32_t x) { return __builtin_popcount(x); }
static inline uint32_t popc_b64(uint64_t x) { return __builtin_popcountll(x); }
static inline uint64_t bfi_b64(uint64_t a, uint64_t b, uint32_t at, uint32_t n) {
    at &= 255; n &= 255;
    if (at > 63 || n == 0) return b;
    uint64_t mask = (n > 63 ? ~0ull : (1ull << n) - 1) << at;
    return (b & ~mask) | ((a << at) & mask);
}
static inline uint32_t bfi_b32(uint32_t a, uint32_t b, uint32_t at, uint32_t n) {
    at &= 255; n &= 255;
    if (at > 31 || n == 0) return b;
    uint32_t mask = (n > 31 ? ~0u : (1u << n) - 1) << at;
    return (b & ~mask) | ((a << at) & mask);
}
static inline uint32_t bfe_u32(uint32_t a, uint32_t at, uint32_t n) {
    at &= 255; n &= 255;
    return at > 31 || n == 0 ? 0 : (a >> at) & (n > 31 ? ~0u : (1u << n) - 1);
}
static inline uint32_t shf_l_wrap_b32(uint32_t a, uint32_t b, uint32_t n) { n &= 31; return n ? (b << n) | (a >> (32 - n)) : b; }
static inline uint32_t shf_r_wrap_b32(uint32_t a, uint32_t b, uint32_t n) { n &= 31; return n ? (b << (32 - n)) | (a >> n) : a; }

// -- counters, only with -DCOUNT=1

enum { LOCAL_LOAD, LOCAL_STORE, GLOBAL_LOAD, GLOBAL_STORE, SHARED_ACCESS };
static inline void count(struct thread *T, int kind, int n) {
    if (COUNT) { uint64_t *c = (uint64_t *)T->accesses + 2 * kind; c[0]++; c[1] += n; }
}
static void enter_block(struct thread *T, uint32_t k) {
    if (!T->budget--) fail(T, TOO_LONG, 0, 0, 0);
    if (COUNT) ((uint64_t *)T->blocks)[k]++;
    if (COUNT && T->trace_size) {
        if (T->trace_used < T->trace_size) ((uint32_t *)T->trace)[T->trace_used] = k;
        T->trace_used++;
    }
}
#define BLOCK(k) enter_block(T, k);

// -- memory

static int within(const struct range *r, uint64_t a, int n) { return a >= r->begin && a + n <= r->end; }
static void find_frame(struct thread *T, uint64_t a, int n, int statement) {
    for (uint64_t k = T->num_frames; k-- > 0;)
        if (within(frames + k, a, n)) return;
    fail(T, NOT_LOCAL, a, n, statement);
}
static void find_range(struct thread *T, uint64_t a, int n, int store, int statement) {
    const struct range *r = (const struct range *)T->ranges;
    if (T->last_range < T->num_ranges && within(r + T->last_range, a, n)) return;
    for (uint64_t k = 0; k < T->num_ranges; k++)
        if (within(r + k, a, n)) { T->last_range = k; return; }
    for (int k = 0; k < num_constants && !store; k++)
        if (within(constants + k, a, n)) return;
    fail(T, NOT_GLOBAL, a, n, statement);
}
// Not inlined: a kernel has thousands of accesses.
#define CHECK(space) static __attribute__((noinline)) void check_##space(struct thread *T, uint64_t a, int n, int store, int statement)
#define ALIGNED if (a & (n - 1)) fail(T, MISALIGNED, a, n, statement)
CHECK(shared) {
    ALIGNED;
    if (a + n > SHARED_BYTES) fail(T, NOT_SHARED, a, n, statement);
    count(T, SHARED_ACCESS, n);
}
CHECK(local) {
    ALIGNED;
    find_frame(T, a, n, statement);
    count(T, store ? LOCAL_STORE : LOCAL_LOAD, n);
    for (int k = 0; COUNT && k < n; k++) ((uint32_t *)T->touched)[a - T->stack + k]++;
}
CHECK(global) {
    ALIGNED;
    find_range(T, a, n, store, statement);
    count(T, store ? GLOBAL_STORE : GLOBAL_LOAD, n);
}
CHECK(const) { check_global(T, a, n, store, statement); }
CHECK(generic) { (a - T->stack < STACK ? check_local : check_global)(T, a, n, store, statement); }
CHECK(param) {}  // addresses are names; ptx_translate.py compares them with the declaration

// Aligned to what PTX declares and, with a shift, to no more. At least 16 bytes before and after it belong to nobody.
static uint64_t push_frame(struct thread *T, uint64_t size, uint64_t align) {
    uint64_t at = (T->top + 31) / 16 * 16;
    if (align < 16) at += align * (T->shift % (16 / align));
    frames[T->num_frames++] = (struct range){at, at + size};
    T->top = at + size;
    return at;
}
static void pop_frames(struct thread *T, uint64_t top, uint64_t num_frames) { T->top = top; T->num_frames = num_frames; }

// -- the launch

static void KERNEL(struct thread *T, const uint64_t *P);

void launch(struct thread *T, const uint64_t *params, uint64_t fill) {
    uint8_t *stack = aligned_alloc(4096, (STACK + 4095) / 4096 * 4096);
    uint8_t *shared = aligned_alloc(256, (SHARED_BYTES + 255) / 256 * 256);
    uint64_t budget = T->budget;
    T->shared = (uint64_t)shared;
    for (T->ctaid_x = 0; T->ctaid_x < T->nctaid_x && !T->fault; T->ctaid_x += !T->fault) {
        memset(shared, fill, SHARED_BYTES);
        for (T->tid_x = 0; T->tid_x < T->ntid_x && !T->fault; T->tid_x += !T->fault) {
            memset(stack, fill, STACK);
            T->stack = T->top = (uint64_t)stack;
            T->num_frames = 0;
            T->budget = budget;
            if (!setjmp(stop)) KERNEL(T, params);
        }
    }
    free(stack);
    free(shared);
}
