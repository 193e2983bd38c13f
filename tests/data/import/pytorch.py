"""Makes pytorch.json, pytorch-stack.json and pytorch-table.json: two passes of a small transformer on the CPU, as
torch.profiler traced them, and its own table of the first of the two traces.

    python3 tests/data/import/pytorch.py    # needs torch

The traces are shortened to the fields that an import reads; no number is changed.
"""

import json
import pathlib

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

HERE = pathlib.Path(__file__).parent


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-6)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(dim, dim, bias=False))
        self.cache = None

    def forward(self, x):
        batch, tokens, dim = x.shape

        def heads(y):
            return y.view(batch, tokens, self.heads, dim // self.heads).transpose(1, 2)

        q, k, v = heads(self.q_proj(x)), heads(self.k_proj(x)), heads(self.v_proj(x))
        is_causal = self.cache is None
        if self.cache is not None:
            k, v = torch.cat([self.cache[0], k], 2), torch.cat([self.cache[1], v], 2)
        self.cache = (k, v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
        return self.o_proj(y.transpose(1, 2).reshape(batch, tokens, dim))


class MLP(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads, hidden):
        super().__init__()
        self.input_layernorm = RMSNorm(dim)
        self.self_attn = Attention(dim, heads)
        self.post_attention_layernorm = RMSNorm(dim)
        self.mlp = MLP(dim, hidden)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class TinyForCausalLM(nn.Module):
    """A model built like Llama."""

    def __init__(self, layers=2, dim=256, heads=4, hidden=688, vocab=1000):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(DecoderLayer(dim, heads, hidden) for _ in range(layers))
        self.norm = RMSNorm(dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x[:, -1:]))


def trace(name, **options):
    torch.manual_seed(0)
    model = TinyForCausalLM().eval()
    prompt = torch.randint(0, 1000, (1, 32))

    def forget():
        for layer in model.layers:
            layer.self_attn.cache = None

    with torch.no_grad():
        # Twice, so that nothing is done for the first time below.
        for _ in range(2):
            model(prompt)
            model(prompt[:, :1])
            forget()
        with profile(activities=[ProfilerActivity.CPU], **options) as profiler:
            with record_function("prefill"):
                model(prompt)
            with record_function("decode"):
                model(prompt[:, :1])
    path = HERE / name
    profiler.export_chrome_trace(str(path))
    path.write_text(shortened(json.loads(path.read_text())))
    return profiler


def shortened(trace):
    """One line for each event, with the fields that matter."""
    lines = []
    for event in trace.pop("traceEvents"):
        is_function = event.get("cat") == "python_function"
        # Functions that aren't modules aren't read.
        if is_function and "nn.Module" not in event["name"] and "pytorch.py" not in event["name"]:
            continue
        arguments = event.pop("args", {})
        wanted = ("External id", "name")
        arguments = {key: arguments[key] for key in wanted if key in arguments}
        if arguments and not is_function:
            event["args"] = arguments
        if event["ph"] in "XMi":
            event.pop("s", None)
            lines.append(json.dumps(event, separators=(",", ":")))
    trace.pop("trace_id", None)
    trace["host_name"] = "localhost"
    trace["traceName"] = "trace.json"
    about = json.dumps(trace)[1:-1]
    return "{" + about + ', "traceEvents": [\n' + ",\n".join(lines) + "\n]}\n"


def main():
    torch.set_num_threads(1)
    table = trace("pytorch.json").key_averages()
    rows = [
        # Microseconds with up to three digits: nanoseconds.
        {"name": row.key, "self_ns": round(1000 * row.self_cpu_time_total),
         "total_ns": round(1000 * row.cpu_time_total), "count": row.count}
        for row in table
    ]
    rows.sort(key=lambda row: -row["self_ns"])
    text = "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"
    (HERE / "pytorch-table.json").write_text(text)
    trace("pytorch-stack.json", with_stack=True)


if __name__ == "__main__":
    main()
