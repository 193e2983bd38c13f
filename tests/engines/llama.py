"""Generates some tokens: llama.py ENGINE MODEL, and THREADS of some."""

import pathlib
import sys

PROMPT = "The quick brown fox jumps over the lazy dog."
TOKENS = 8


def xllamacpp(path):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 512
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
    server = xllamacpp.Server(params)
    return server.handle_completions({"prompt": PROMPT, "n_predict": TOKENS, "temperature": 0.0})["choices"][0]["text"]


def gpt4all(path):
    from gpt4all import GPT4All

    path = pathlib.Path(path).resolve()
    model = GPT4All(path.name, model_path=path.parent, allow_download=False, device="cpu", n_threads=2, n_ctx=512)
    return model.generate(PROMPT, max_tokens=TOKENS, temp=0)


def llama_cpp(path, threads):
    """Its own timing goes to standard error."""
    from llama_cpp import Llama

    model = Llama(path, n_ctx=512, n_threads=int(threads), n_threads_batch=int(threads))
    return model(PROMPT * 8, max_tokens=64, temperature=0.0)["choices"][0]["text"]


if __name__ == "__main__":
    engine = {"xllamacpp": xllamacpp, "gpt4all": gpt4all, "llama_cpp": llama_cpp}[sys.argv[1]]
    print(repr(engine(*sys.argv[2 : 2 + engine.__code__.co_argcount])))
