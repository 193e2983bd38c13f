// Every kernel, to be called as the driver would: a shared library for tests, made by g++ as ../shim.rs
// says.
//
//     struct Dim3 { uint32_t x, y, z; };
//     const char *launch_<kernel>(Dim3 grid, Dim3 block, uint32_t shared_bytes, void **args);
//
// runs it to its end. `args` are as those of cuLaunchKernel: a pointer to each argument, in order. It
// returns null, or a sentence that says which rule of CUDA was broken, and stands until the next launch.
// One launch runs at a time; others wait.
//
//     void shim_add_memory(const void *address, uint64_t bytes);
//     void shim_remove_memory(const void *address);
//
// tell of buffers. Once there is one, a kernel that reads or writes elsewhere ends with a sentence.
//
//     void shim_set_order(uint32_t seed);                    0: warps and threads in order; 1: the last ones
//                                                            first; else shuffled, anew at each turn
//     void shim_set_global_timer(uint64_t (*now)(void));     what %globaltimer reads; null: the system's
#undef _FORTIFY_SOURCE // which takes a jump to another stack for an attack
#include "shim.hpp"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <ucontext.h>
#include <utility>
#include <vector>

#include "../attention.cu"
#include "../elementwise.cu"
#include "../embed.cu"
#include "../gemm.cu"
#include "../gemv.cu"
#include "../peak.cu"
#include "../rms_norm.cu"
#include "../rope.cu"
#include "../stamp.cu"
#include "planted.cu"

#define UNCHECKED __attribute__((no_sanitize_address))
#define EXPORT extern "C" __attribute__((visibility("default")))

// The borders of a section, and of this library, by the linker.
extern "C" {
extern char __ehdr_start __attribute__((visibility("hidden")));
extern char _end __attribute__((visibility("hidden")));
extern char __start_shared_memory[] __attribute__((visibility("hidden")));
extern char __stop_shared_memory[] __attribute__((visibility("hidden")));
}

namespace shim {

uint3 thread_index, block_index, block_size, grid_size;

// Four NaNs a float4. Behind what a launch asked for nobody may write.
constexpr uint32_t MOST_SHARED = 48 * 1024, GUARD = 4 * 1024;
constexpr int POISON = 0xff;
float4 shared_of_launch[(MOST_SHARED + GUARD) / sizeof(float4)];

constexpr size_t STACK = 256 * 1024;
constexpr uint32_t MOST_THREADS = 1024;

struct Launch {
    const char *name;
    void (*run)(const Launch &);
    void (*kernel)();
    void **args;
};

struct Fiber {
    enum State { ready, at_barrier, at_shuffle, done } state;
    bool started;
    uint3 index;
    std::unique_ptr<char[]> stack;
    ucontext_t entry;
    jmp_buf place;
    // A shuffle: what it gives and asks for, then what it got.
    float value;
    uint32_t mask, lane_xor;
};

std::mutex one_launch;
Fiber fibers[MOST_THREADS];
Fiber *running; // null while none is
Launch launch;
jmp_buf scheduler;
ucontext_t before_entry;
std::mt19937 shuffle;
uint32_t order_seed;
uint64_t (*timer)(void);
using Buffer = std::pair<uintptr_t, uint64_t>; // address and bytes
std::map<uintptr_t, uint64_t> memory;
Buffer last_buffers[4]; // the last ones that threads used: a product reads two and writes one
int oldest_buffer;
uintptr_t running_stack;
bool broke_off;
char sentence[256];

UNCHECKED void wait(Fiber::State state) {
    running->state = state;
    if (_setjmp(running->place) == 0) _longjmp(scheduler, 1);
}

void sync_block() { wait(Fiber::at_barrier); }

UNCHECKED float exchange(uint32_t mask, float value, uint32_t lane_xor) {
    running->value = value, running->mask = mask, running->lane_xor = lane_xor;
    wait(Fiber::at_shuffle);
    return running->value;
}

uint64_t global_timer() {
    if (timer) return timer();
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + now.tv_nsec;
}

// Ends the launch. The `sentence` is there.
[[noreturn]] void break_off() {
    broke_off = true;
    wait(Fiber::done);
    std::abort(); // nobody goes on with it
}

UNCHECKED bool within(uintptr_t address, size_t size, uintptr_t first, uint64_t bytes) {
    return address - first < bytes && size <= bytes - (address - first);
}

// Whether that is within a buffer. If not, the `sentence` says so.
bool find_buffer(uintptr_t address, size_t size, const char *does) {
    const auto behind = memory.upper_bound(address);
    const auto [first, bytes] = behind == memory.begin() ? Buffer() : Buffer(*std::prev(behind));
    last_buffers[oldest_buffer] = {first, bytes};
    oldest_buffer = (oldest_buffer + 1) % 4;
    if (within(address, size, first, bytes)) return true;
    std::snprintf(sentence, sizeof sentence,
                  "%s: thread %u of block (%u, %u, %u) %s %zu bytes from byte %zu on of a buffer of %zu", launch.name,
                  thread_index.x, block_index.x, block_index.y, block_index.z, does, size, (size_t)(address - first),
                  (size_t)bytes);
    return false;
}

// Ends the launch where a kernel's thread leaves the buffers, its stack and this library. The shim's own
// code is let through.
UNCHECKED void check(uintptr_t address, size_t size, const char *does) {
    static bool checking;
    if (!running || checking) return;
    for (const Buffer &buffer : last_buffers)
        if (within(address, size, buffer.first, buffer.second)) return;
    if (within(address, size, running_stack, STACK)) return;
    if (within(address, size, (uintptr_t)&__ehdr_start, &_end - &__ehdr_start)) return;
    checking = true;
    const bool allowed = memory.empty() || find_buffer(address, size, does);
    checking = false;
    if (!allowed) break_off();
}

// What each fiber does for ever: a thread of a block, then one of another.
void live() {
    for (;;) {
        launch.run(launch);
        wait(Fiber::done);
    }
}

UNCHECKED void resume(Fiber &fiber) {
    if (!fiber.stack) fiber.stack.reset(new char[STACK]);
    running = &fiber;
    thread_index = fiber.index;
    if (_setjmp(scheduler) != 0) {
        running = nullptr;
        return;
    }
    running_stack = (uintptr_t)fiber.stack.get();
    if (fiber.started) _longjmp(fiber.place, 1);
    fiber.started = true;
    getcontext(&fiber.entry);
    fiber.entry.uc_stack.ss_sp = fiber.stack.get();
    fiber.entry.uc_stack.ss_size = STACK;
    fiber.entry.uc_link = nullptr;
    makecontext(&fiber.entry, live, 0);
    swapcontext(&before_entry, &fiber.entry);
}

// The lanes of a warp exchange values and go on, if all are there for it.
UNCHECKED bool exchange_in_warp(Fiber *lanes, uint32_t n) {
    if (n < WARP) return false;
    for (uint32_t i = 0; i < WARP; i++)
        if (lanes[i].state != Fiber::at_shuffle || lanes[i].mask != ALL_LANES || lanes[i].lane_xor != lanes[0].lane_xor)
            return false;
    float values[WARP];
    for (uint32_t i = 0; i < WARP; i++) values[i] = lanes[i].value;
    for (uint32_t i = 0; i < WARP; i++) {
        lanes[i].value = values[i ^ lanes[i].lane_xor % WARP];
        lanes[i].state = Fiber::ready;
    }
    return true;
}

// The order in which `n` take turns.
UNCHECKED void reorder(std::vector<uint32_t> &order, uint32_t n) {
    order.resize(n);
    uint32_t *places = order.data();
    for (uint32_t i = 0; i < n; i++) places[i] = i;
    if (order_seed == 1) std::reverse(order.begin(), order.end());
    if (order_seed > 1) std::shuffle(order.begin(), order.end(), shuffle);
}

// Runs each warp as far as it gets without the others, so that they are as far apart as they can be.
UNCHECKED void run_warps(uint32_t n) {
    std::vector<uint32_t> warps, lanes;
    reorder(warps, (n + WARP - 1) / WARP);
    for (uint32_t warp : warps) {
        Fiber *first = fibers + warp * WARP;
        const uint32_t size = min(WARP, n - warp * WARP);
        do {
            reorder(lanes, size);
            // By a pointer: what an unchecked function calls of a vector's is checked, and not inlined.
            const uint32_t *lane = lanes.data();
            for (uint32_t i = 0; i < size; i++)
                if (first[lane[i]].state == Fiber::ready && !broke_off) resume(first[lane[i]]);
        } while (exchange_in_warp(first, size));
    }
}

UNCHECKED uint32_t count(uint32_t n, Fiber::State state) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++) found += fibers[i].state == state;
    return found;
}

// Of the stacks of a launch that broke off nothing is left.
const char *given_up() {
    broke_off = false;
    for (Fiber &fiber : fibers) fiber.started = false;
    return sentence;
}

const char *run_block(const char *name, uint32_t n, uint32_t shared_bytes) {
    std::memset(__start_shared_memory, POISON, __stop_shared_memory - __start_shared_memory);
    std::memset(shared_of_launch, POISON, shared_bytes + GUARD);
    for (uint32_t i = 0; i < n; i++) {
        fibers[i].state = Fiber::ready;
        fibers[i].index = {i % block_size.x, i / block_size.x % block_size.y, i / block_size.x / block_size.y};
    }
    for (;;) {
        run_warps(n);
        if (broke_off) return given_up();
        if (count(n, Fiber::done) == n) break;
        if (count(n, Fiber::at_barrier) == n) {
            for (uint32_t i = 0; i < n; i++) fibers[i].state = Fiber::ready;
            continue;
        }
        std::snprintf(sentence, sizeof sentence,
                      "%s: of %u threads of block (%u, %u, %u), %u wait at __syncthreads, %u in a shuffle, and %u "
                      "are done: they wait for ever",
                      name, n, block_index.x, block_index.y, block_index.z, count(n, Fiber::at_barrier),
                      count(n, Fiber::at_shuffle), count(n, Fiber::done));
        return given_up();
    }
    const char *guard = (const char *)shared_of_launch + shared_bytes;
    for (uint32_t i = 0; i < GUARD; i++) {
        if (guard[i] == (char)POISON) continue;
        std::snprintf(sentence, sizeof sentence, "%s: wrote to byte %u of the %u of shared memory that it was given",
                      name, shared_bytes + i, shared_bytes);
        return sentence;
    }
    return nullptr;
}

const char *run_grid(uint3 grid, uint3 block, uint32_t shared_bytes, const Launch &what) {
    const char *name = what.name;
    std::lock_guard<std::mutex> lock(one_launch);
    const uint64_t n = (uint64_t)block.x * block.y * block.z;
    if (n == 0 || n > MOST_THREADS || grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffff ||
        grid.y > 65535 || grid.z > 65535 || shared_bytes > MOST_SHARED) {
        std::snprintf(sentence, sizeof sentence, "%s: no device runs a grid of (%u, %u, %u) and a block of (%u, %u, %u) with %u bytes",
                      name, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes);
        return sentence;
    }
    launch = what;
    block_size = block, grid_size = grid;
    shuffle.seed(order_seed);
    for (block_index.z = 0; block_index.z < grid.z; block_index.z++)
        for (block_index.y = 0; block_index.y < grid.y; block_index.y++)
            for (block_index.x = 0; block_index.x < grid.x; block_index.x++)
                if (const char *fault = run_block(name, (uint32_t)n, shared_bytes)) return fault;
    return nullptr;
}

// Reads the arguments where the caller has them.
template <class... Args, size_t... I>
UNCHECKED void call(void (*kernel)(Args...), void **args, std::index_sequence<I...>) {
    kernel(*(Args *)args[I]...);
}

template <class... Args>
const char *start(const char *name, void (*kernel)(Args...), uint3 grid, uint3 block, uint32_t shared_bytes, void **args) {
    const auto run = [](const Launch &launch) {
        call((void (*)(Args...))launch.kernel, launch.args, std::index_sequence_for<Args...>());
    };
    return run_grid(grid, block, shared_bytes, {name, run, (void (*)())kernel, args});
}

} // namespace shim

// Called by code that -fsanitize=alignment made, where a device would trap. The structs are those of GCC
// and Clang (compiler-rt, ubsan_handlers.h).
struct TypeMismatch {
    const char *file;
    uint32_t line, column;
    const struct {
        uint16_t kind, info;
        char name[1];
    } * type;
    uint8_t log_alignment, check;
};

#define HOOK extern "C" __attribute__((visibility("hidden")))

HOOK void __ubsan_handle_type_mismatch_v1(TypeMismatch *what, uintptr_t address) {
    const char *file = std::strrchr(what->file, '/');
    std::snprintf(shim::sentence, sizeof shim::sentence,
                  "%s:%u: a %s has to be at a multiple of %u bytes, and is %u behind one", file ? file + 1 : what->file,
                  what->line, what->type->name, 1u << what->log_alignment,
                  (uint32_t)(address & ((1u << what->log_alignment) - 1)));
    shim::break_off();
}

// Called before every load and store, by code that -fsanitize=kernel-address made: that of the kernel for
// Linux, which has no runtime library.
#define ACCESS(size)                                                                                        \
    HOOK UNCHECKED void __asan_load##size##_noabort(uintptr_t at) { shim::check(at, size, "reads"); }       \
    HOOK UNCHECKED void __asan_store##size##_noabort(uintptr_t at) { shim::check(at, size, "writes"); }

ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
HOOK UNCHECKED void __asan_loadN_noabort(uintptr_t at, size_t size) { shim::check(at, size, "reads"); }
HOOK UNCHECKED void __asan_storeN_noabort(uintptr_t at, size_t size) { shim::check(at, size, "writes"); }
HOOK void __asan_handle_no_return() {}
HOOK void __asan_before_dynamic_init(const char *) {}
HOOK void __asan_after_dynamic_init() {}

EXPORT void shim_add_memory(const void *address, uint64_t bytes) {
    std::lock_guard<std::mutex> lock(shim::one_launch);
    shim::memory[(uintptr_t)address] = bytes;
    std::fill(std::begin(shim::last_buffers), std::end(shim::last_buffers), shim::Buffer());
}

EXPORT void shim_remove_memory(const void *address) {
    std::lock_guard<std::mutex> lock(shim::one_launch);
    shim::memory.erase((uintptr_t)address);
    std::fill(std::begin(shim::last_buffers), std::end(shim::last_buffers), shim::Buffer());
}

EXPORT void shim_set_order(uint32_t seed) {
    std::lock_guard<std::mutex> lock(shim::one_launch);
    shim::order_seed = seed;
}

EXPORT void shim_set_global_timer(uint64_t (*now)(void)) {
    std::lock_guard<std::mutex> lock(shim::one_launch);
    shim::timer = now;
}

#define KERNEL(name)                                                                                        \
    EXPORT const char *launch_##name(uint3 grid, uint3 block, uint32_t shared_bytes, void **args) {         \
        return shim::start(#name, name, grid, block, shared_bytes, args);                                   \
    }

KERNEL(add)
KERNEL(add_bias)
KERNEL(attention)
KERNEL(embed_f32)
KERNEL(embed_f16)
KERNEL(embed_q8_0)
KERNEL(embed_q4_k)
KERNEL(gemm_f32)
KERNEL(gemm_f16)
KERNEL(gemm_q8_0)
KERNEL(gemm_q4_k)
KERNEL(gemv_f32)
KERNEL(gemv_f16)
KERNEL(gemv_q8_0)
KERNEL(gemv_q4_k)
KERNEL(gemv_add_f32)
KERNEL(gemv_add_f16)
KERNEL(gemv_add_q8_0)
KERNEL(gemv_add_q4_k)
KERNEL(norm_gemv_f32)
KERNEL(norm_gemv_f16)
KERNEL(norm_gemv_q8_0)
KERNEL(norm_gemv_q4_k)
KERNEL(norm_gate_up_f32)
KERNEL(norm_gate_up_f16)
KERNEL(norm_gate_up_q8_0)
KERNEL(norm_gate_up_q4_k)
KERNEL(norm_qkv_rope_f32)
KERNEL(norm_qkv_rope_f16)
KERNEL(norm_qkv_rope_q8_0)
KERNEL(norm_qkv_rope_q4_k)
KERNEL(peak_fill)
KERNEL(peak_multiply_add)
KERNEL(peak_read)
KERNEL(rms_norm)
KERNEL(rope)
KERNEL(scores)
KERNEL(silu_mul)
KERNEL(relu_squared_mul)
KERNEL(softmax)
KERNEL(stamp)
KERNEL(tick)
KERNEL(weighted_sum)
KERNEL(planted_missing_barrier)
KERNEL(planted_lonely_barrier)
KERNEL(planted_lonely_shuffle)
KERNEL(planted_misaligned)
KERNEL(planted_overflow)
KERNEL(planted_read_behind)
KERNEL(planted_hasty_warp)
