// A llama.cpp whose passes end by an exception, which its interface turns into a number, as the real one's does.
#include <cstdint>
#include <stdexcept>

struct llama_batch { int32_t n_tokens; };
struct llama_context {
    int decode(const llama_batch &batch);
};

int llama_context::decode(const llama_batch &batch) {
    throw std::runtime_error(batch.n_tokens > 1 ? "a prompt" : "a token");
}

extern "C" long ggml_asked(void) { return 7; }
extern "C" int llama_decode(void *context, llama_batch batch) {
    try {
        return static_cast<llama_context *>(context)->decode(batch);
    } catch (const std::runtime_error &) {
        return -7;
    }
}
