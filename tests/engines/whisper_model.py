"""Makes a model for whisper.cpp, of the shape of `tiny` and one layer, with random weights, in its ggml format."""

import struct

import random

VOCABULARY, AUDIO, WIDTH, HEADS, LAYERS, TEXT, MELS = 51865, 1500, 384, 6, 1, 448, 80
F32, F16 = 0, 1


def write(out):
    random.seed(1)

    def ints(*values):
        out.write(struct.pack(f"<{len(values)}i", *values))

    def tensor(name, shape, kind):
        ints(len(shape), len(name), kind)
        ints(*reversed(shape))
        out.write(name.encode())
        n = 1
        for size in shape:
            n *= size
        # As many different rows as are quickly made.
        some = [random.gauss(0, 0.02) for _ in range(min(n, 4093))]
        packed = struct.pack(f"<{len(some)}{'e' if kind == F16 else 'f'}", *some)
        size = n * (2 if kind == F16 else 4)
        out.write((packed * (size // len(packed) + 1))[:size])

    def norm(name):
        tensor(f"{name}.weight", [WIDTH], F32)
        tensor(f"{name}.bias", [WIDTH], F32)

    def linear(name, rows, columns, has_bias=True):
        tensor(f"{name}.weight", [rows, columns], F16)
        if has_bias:
            tensor(f"{name}.bias", [rows], F32)

    def block(name, attentions):
        norm(f"{name}.mlp_ln")
        linear(f"{name}.mlp.0", 4 * WIDTH, WIDTH)
        linear(f"{name}.mlp.2", WIDTH, 4 * WIDTH)
        for attention in attentions:
            norm(f"{name}.{attention}_ln")
            for part in "query", "key", "value", "out":
                linear(f"{name}.{attention}.{part}", WIDTH, WIDTH, part != "key")

    out.write(struct.pack("<I", 0x67676D6C))
    ints(VOCABULARY, AUDIO, WIDTH, HEADS, LAYERS, TEXT, WIDTH, HEADS, LAYERS, MELS, F16)
    ints(MELS, 201)
    out.write(struct.pack(f"<{MELS * 201}f", *(abs(random.gauss(0, 0.01)) for _ in range(MELS * 201))))
    ints(50257)
    for nth in range(50257):
        word = b" " if nth == 220 else f"w{nth} ".encode()
        ints(len(word))
        out.write(word)
    tensor("encoder.positional_embedding", [AUDIO, WIDTH], F32)
    tensor("encoder.conv1.weight", [WIDTH, MELS, 3], F16)
    tensor("encoder.conv1.bias", [WIDTH, 1], F32)
    tensor("encoder.conv2.weight", [WIDTH, WIDTH, 3], F16)
    tensor("encoder.conv2.bias", [WIDTH, 1], F32)
    norm("encoder.ln_post")
    for layer in range(LAYERS):
        block(f"encoder.blocks.{layer}", ["attn"])
    tensor("decoder.positional_embedding", [TEXT, WIDTH], F32)
    tensor("decoder.token_embedding.weight", [VOCABULARY, WIDTH], F16)
    norm("decoder.ln")
    for layer in range(LAYERS):
        block(f"decoder.blocks.{layer}", ["attn", "cross_attn"])
