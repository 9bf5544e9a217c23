#!/usr/bin/env python3
"""Other engines for tests: llama.cpp's server, benchmark and perplexity tool, and a server with OpenAI's interface.

  fake_engine.py llama-server|llama-bench|llama-perplexity ARGUMENTS [--fault NAME]
  fake_engine.py openai PORT          the fault is the name of the model that a request names

Without a fault it answers as the real programs do (fields from the documentation and source of llama.cpp and vLLM); each fault breaks one rule
that figures must obey: see FAULTS. Tokens are counted, not computed."""
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULTS = {
    "": "none",
    "cached": "5 tokens of every prompt come from a cache",
    "short": "the answer ends 3 tokens early",
    "bos": "one token is added to every prompt of more than 16",
    "template": "7 tokens are added to every prompt",
    "nousage": "the number of generated tokens is not said",
    "bundle": "a chunk has two tokens",
    "load": "the model is loaded in every request of more than 16 prompt tokens",
    "truncated": "the prompt is cut",
    "error": "the stream ends with an error",
    "garbage": "an event is no JSON",
    "crash": "the server dies in the middle of an answer",
    "plain": "ignore_eos and min_tokens are refused",
    "dies": "the program ends while it starts",
    "slow": "a token takes 5 ms instead of 1",
    "subwords": "no fault: a word of more than 4 letters is two tokens",
    "ram": "5 tokens of every prompt come from a cache in memory, unless LLAMA_ARG_CACHE_RAM is 0",
    "several": "two tests are run",
    "bosreuse": "no fault: as llama.cpp, the first prompt token comes from the cache unless cache_prompt is false",
}
FAULT = ""
MODEL = ""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def document(self, status, o):
        body = json.dumps(o).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/health":
            self.document(200, {"status": "ok"})
        elif self.path == "/props":
            self.document(200, {"build_info": "b1-fake", "total_slots": 1, "model_path": MODEL,
                                "default_generation_settings": {"n_ctx": 4096}})
        elif self.path == "/v1/models":
            self.document(200, {"data": [{"id": "one"}, {"id": "two"}]})
        else:
            self.document(404, {"error": {"message": "no such path"}})

    def event(self, o):
        self.wfile.write(b"data: " + (o if isinstance(o, bytes) else json.dumps(o).encode()) + b"\n\n")
        self.wfile.flush()

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path not in ("/completion", "/v1/completions"):
            self.document(404, {"error": {"message": "no such path"}})
            return
        native = self.path == "/completion"
        fault = FAULT if native else request["model"]
        if fault == "plain" and ("ignore_eos" in request or "min_tokens" in request):
            self.document(400, {"error": {"message": "unknown field ignore_eos"}})
            return
        prompt = request["prompt"]
        n_prompt = len(prompt) if isinstance(prompt, list) else len(prompt.split())
        if fault == "subwords":
            n_prompt += sum(len(word) > 4 for word in prompt.split())
        n = request["n_predict" if native else "max_tokens"]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.answer(request, native, fault, n_prompt, n)
        self.close_connection = True

    def answer(self, request, native, fault, n_prompt, n):
        big = n_prompt > 16
        cached = 5 if fault == "cached" and n_prompt > 5 else 0
        if fault == "ram" and os.environ.get("LLAMA_ARG_CACHE_RAM") != "0":
            cached = 5
        if fault == "bosreuse" and request.get("cache_prompt", True):
            cached = 1
        if native and request["cache_prompt"]:
            cached = request.get("_", getattr(self.server, "kept", 0))
            self.server.kept = n_prompt
            cached = min(cached, n_prompt - 1) if n else 0
        n_counted = n_prompt + (1 if fault == "bos" and big else 7 if fault == "template" else 0)
        if fault == "short":
            n = max(1, n - 3)
        begun = time.monotonic()
        time.sleep(0.002)
        first = time.monotonic()
        step = 2 if fault == "bundle" else 1
        for done in range(step, n + step, step):
            done = min(done, n)
            if done > step:
                time.sleep(0.005 if fault == "slow" else 0.001)
            if fault == "crash" and done > 2 and big:
                os._exit(3)
            if fault == "garbage" and done > 2:
                self.event(b"{broken")
            self.event(self.chunk(native, request, done, step, n_counted, fault))
            if fault == "error" and done > 2:
                self.event({"error": {"message": "out of pages"}})
                return
        if self.path == "/v1/completions" or n:
            self.last(native, fault, n_counted, cached, n, first - begun, time.monotonic() - first)

    def chunk(self, native, request, done, step, n_prompt, fault):
        if native:
            o = {"index": 0, "content": " a" * step, "tokens": [7] * step, "stop": False, "tokens_evaluated": n_prompt}
            if fault != "nousage":
                o["tokens_predicted"] = done
            return o
        o = {"choices": [{"index": 0, "text": " a" * step, "finish_reason": None}]}
        if request["stream_options"].get("continuous_usage_stats") and fault not in ("nousage", "bundle"):
            o["usage"] = {"prompt_tokens": n_prompt, "completion_tokens": done}
        return o

    def last(self, native, fault, n_prompt, cached, n, prompt_s, gen_s):
        timings = {"cache_n": cached, "prompt_n": n_prompt - cached, "prompt_ms": 1e3 * prompt_s,
                   "predicted_n": n, "predicted_ms": 1e3 * gen_s}
        if native:
            o = {"content": "", "tokens": [], "stop": True, "stop_type": "eos" if fault == "short" else "limit",
                 "tokens_evaluated": n_prompt, "truncated": fault == "truncated", "timings": timings}
            if fault != "nousage":
                o["tokens_predicted"] = n
            self.event(o)
            return
        o = {"choices": [], "usage": {"prompt_tokens": n_prompt, "completion_tokens": n,
                                      "prompt_tokens_details": {"cached_tokens": cached}}}
        if fault == "load" and n_prompt > 16:
            o["load_duration"] = 250000000
        if fault == "nousage":
            del o["usage"]
        self.event(o)
        self.event(b"[DONE]")


def option(args, name, default=""):
    return args[args.index(name) + 1] if name in args else default


def serve(port):
    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 16
    Server(("127.0.0.1", port), Handler).serve_forever()


def main():
    global FAULT, MODEL
    kind, args = sys.argv[1], sys.argv[2:]
    FAULT = option(args, "--fault")
    if FAULT not in FAULTS:
        sys.exit(f"unknown fault {FAULT}")
    if FAULT == "dies":
        print("error: unknown argument --nonsense", file=sys.stderr)
        sys.exit(1)
    MODEL = option(args, "-m")
    if kind == "openai":
        serve(int(args[0]))
    elif kind == "llama-server":
        print("system_info: n_threads = 2 (n_threads_batch = 2) / 2", flush=True)
        serve(int(option(args, "--port")))
    elif kind == "llama-bench":
        p, n, d = (int(option(args, k, "0")) for k in ("-p", "-n", "-d"))
        d += FAULT == "bos"
        ns = int(1e6 * (p / 20 + n) + 1e5)
        print("warning: something on stderr", file=sys.stderr)
        for _ in range(0 if FAULT == "nousage" else 2 if FAULT == "several" else 1):
            print(json.dumps({"build_commit": "fake", "build_number": 1, "n_threads": 2, "n_prompt": p, "n_gen": n,
                              "n_depth": d, "samples_ns": [ns], "avg_ns": ns}))
    elif kind == "llama-perplexity":
        batch = int(option(args, "-b", "2048"))
        text = open(option(args, "-f")).read()
        ppl = 5 + (len(text) % 7) / 10 + (FAULT == "slow" and batch == 1)
        print(f"perplexity: calculating perplexity\nFinal estimate: PPL = {ppl:.4f} +/- 0.01000")


main()
