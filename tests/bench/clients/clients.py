#!/usr/bin/env python3
"""Do clients that others wrote get along with `qdyno serve`, and do their figures agree with the server's own?

curl, the Python package openai, aiperf and guidellm each send requests to a server of their own that loads the same model. What
each reports (requests, tokens, time to the first token, time between tokens, duration) is compared with what the server's
/metrics says about the same requests. Counts must be equal. Means of times must agree within --within (2 %): the client's clock also sees
the network and its own work, so its times are longer, by about --grace (3 ms) per request that are allowed on top.

Packages come from the Python registry into virtual environments in --folder, once. A client that cannot be installed or that cannot
run here is named, with its last lines of output, and left out. Exit status 1: a client disagrees or failed; 2: none could run.
"""
import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

PROMPT = "Once upon a time there was a little girl who lived in a big house with a red door and a dog. "


def say(text):
    print(f"clients: {text}", file=sys.stderr, flush=True)


class Server:
    """A server with a model; `with` ends it."""

    def __init__(self, options):
        self.command = [options.qdyno, "serve", "-m", options.model, "--port", "0", "-o", "jsonl", *options.server]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        self.url = json.loads(self.process.stdout.readline())["url"]
        self.root = self.url.removesuffix("/v1")
        with urllib.request.urlopen(self.url + "/models") as r:
            self.model = json.load(r)["data"][0]["id"]
        self.before = self.figures()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def figures(self):
        with urllib.request.urlopen(self.root + "/metrics") as r:
            return {m[1]: float(m[2]) for m in re.finditer(r"^qdyno_serve_(\S+) (\S+)$", r.read().decode(), re.M)}

    def seen(self):
        """What the server counted since the last call, in the form of the clients' results."""
        now = self.figures()
        of = lambda name: now[name] - self.before[name]
        mean = lambda name: 1e3 * of(name + "_sum") / of(name + "_count") if of(name + "_count") else None
        result = {
            "requests": of('requests_total{outcome="completed"}'),
            "tokens out": of("generated_tokens_total"),
            "tokens in": of("prompt_tokens_total"),
            "ttft ms": mean("time_to_first_token_seconds"),
            "itl ms": mean("inter_token_latency_seconds"),
            "duration ms": mean("request_duration_seconds"),
        }
        self.before = now
        return result


# ---------------------------------------------------------------- clients: each returns its figures, None for what it does not report


def client_curl(options, server, _):
    """One request after the other, without streaming: duration only."""
    tokens = [0, 0]
    seconds = 0.0
    for _ in range(options.requests):
        body = {"prompt": PROMPT, "max_tokens": options.tokens, "ignore_eos": True}
        out = subprocess.run(
            ["curl", "-sS", "--fail", "-w", "\n%{time_total}", server.url + "/completions", "-H", "Content-Type: application/json", "-d", json.dumps(body)],
            check=True, capture_output=True, text=True).stdout
        document, took = out.rsplit("\n", 1)
        usage = json.loads(document)["usage"]
        tokens[0] += usage["prompt_tokens"]
        tokens[1] += usage["completion_tokens"]
        seconds += float(took)
    return {"requests": options.requests, "tokens in": tokens[0], "tokens out": tokens[1], "duration ms": 1e3 * seconds / options.requests}


OPENAI = r'''
import asyncio, json, sys, time
from openai import AsyncOpenAI
url, model, requests, concurrency, tokens, prompt = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]), sys.argv[6]
client = AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
first, gaps, durations, counts = [], [], [], [0, 0]
async def one(gate):
    async with gate:
        begun = last = None
        start = time.perf_counter()
        stream = await client.completions.create(model=model, prompt=prompt, max_tokens=tokens, stream=True,
                                                 stream_options={"include_usage": True}, extra_body={"ignore_eos": True})
        async for event in stream:
            now = time.perf_counter()
            if event.usage:
                counts[0] += event.usage.prompt_tokens
                counts[1] += event.usage.completion_tokens
            if not event.choices:
                continue
            if begun is None:
                begun = now
            last = now
        first.append(begun - start)
        gaps.append((last - begun, tokens - 1))
        durations.append(last - start)
async def main():
    models = await client.models.list()
    assert [m.id for m in models.data] == [model], models
    gate = asyncio.Semaphore(concurrency)
    await asyncio.gather(*(one(gate) for _ in range(requests)))
    mean = lambda x: 1e3 * sum(x) / len(x)
    print(json.dumps({"requests": len(first), "tokens in": counts[0], "tokens out": counts[1], "ttft ms": mean(first),
                      "itl ms": 1e3 * sum(g for g, _ in gaps) / sum(n for _, n in gaps), "duration ms": mean(durations)}))
asyncio.run(main())
'''


def client_openai(options, server, folder):
    out = subprocess.run([os.path.join(folder, "bin", "python"), "-c", OPENAI, server.url, server.model, str(options.requests),
                          str(options.concurrency), str(options.tokens), PROMPT], check=True, capture_output=True, text=True, timeout=options.patience)
    return json.loads(out.stdout)


def make_tokenizer(folder):
    """A tokenizer for clients that insist on one of their own and would download it: every word is a token. Only they count with it."""
    where = os.path.join(folder, "tokenizer")
    code = ("import sys; from tokenizers import Tokenizer, models, pre_tokenizers; from transformers import PreTrainedTokenizerFast;"
            "words = {w: i for i, w in enumerate(['[UNK]', '</s>'] + sys.argv[2].split())};"
            "t = Tokenizer(models.WordLevel(words, unk_token='[UNK]')); t.pre_tokenizer = pre_tokenizers.Whitespace();"
            "PreTrainedTokenizerFast(tokenizer_object=t, unk_token='[UNK]', eos_token='</s>', pad_token='</s>').save_pretrained(sys.argv[1])")
    subprocess.run([os.path.join(folder, "bin", "python"), "-c", code, where, " ".join(dict.fromkeys(PROMPT.split()))], check=True, capture_output=True, text=True)
    return where


def client_aiperf(options, server, folder):
    with tempfile.TemporaryDirectory() as out:
        data = os.path.join(out, "prompts.jsonl")
        with open(data, "w", encoding="utf-8") as f:
            f.writelines(json.dumps({"text": PROMPT}) + "\n" for _ in range(options.requests))
        subprocess.run(
            [os.path.join(folder, "bin", "aiperf"), "profile", "--model", server.model, "--url", server.root, "--endpoint-type", "completions", "--streaming",
             "--tokenizer", make_tokenizer(folder), "--use-server-token-count", "--input-file", data, "--custom-dataset-type", "single_turn",
             "--request-count", str(options.requests), "--concurrency", str(options.concurrency), "--extra-inputs", f"max_tokens:{options.tokens}",
             "--extra-inputs", "ignore_eos:true", "--output-artifact-dir", out, "--ui", "none"],
            check=True, capture_output=True, text=True, timeout=options.patience)
        with open(glob.glob(os.path.join(out, "**", "profile_export_aiperf.json"), recursive=True)[0], encoding="utf-8") as f:
            d = json.load(f)
    average = lambda name: d[name]["avg"] if name in d else None
    total = lambda name: d[name]["avg"] * d["request_count"]["avg"] if name in d else None
    return {"requests": average("request_count"), "tokens in": total("input_sequence_length"), "tokens out": total("output_sequence_length"),
            "ttft ms": average("time_to_first_token"), "itl ms": average("inter_token_latency"), "duration ms": average("request_latency")}


def client_guidellm(options, server, folder):
    with tempfile.TemporaryDirectory() as out:
        data = os.path.join(out, "prompts.jsonl")
        with open(data, "w", encoding="utf-8") as f:
            f.writelines(json.dumps({"prompt": PROMPT, "output_tokens_count": options.tokens}) + "\n" for _ in range(options.requests))
        report = os.path.join(out, "report.json")
        backend = {"kind": "openai_http", "target": server.root, "model": server.model, "request_format": "/v1/completions", "http2": False,
                   "max_tokens": options.tokens, "extras": {"body": {"ignore_eos": True}}}
        settings = {"backend": backend, "profile": {"kind": "concurrent", "streams": [options.concurrency]},
                    "constraint": {"kind": "max_requests", "count": options.requests}, "data": {"kind": "json_file", "path": data},
                    "tokenizer": {"kind": "huggingface_auto", "model": make_tokenizer(folder)}, "output": {"kind": "json", "path": report}}
        flags = [word for name, value in settings.items() for word in (f"--{name}", json.dumps(value))]
        subprocess.run([os.path.join(folder, "bin", "guidellm"), "run", *flags, "--disable-console"],
                       check=True, capture_output=True, text=True, timeout=options.patience, env={**os.environ, "HF_HUB_OFFLINE": "1"})
        with open(report, encoding="utf-8") as f:
            m = json.load(f)["benchmarks"][0]["metrics"]
    mean = lambda name: m[name]["successful"]["mean"]
    total = lambda name: m[name]["successful"]["total_sum"]
    return {"requests": m["request_totals"]["successful"], "tokens in": total("prompt_token_count"), "tokens out": total("output_token_count"),
            "ttft ms": mean("time_to_first_token_ms"), "itl ms": mean("inter_token_latency_ms"), "duration ms": 1e3 * mean("request_latency")}


CLIENTS = {"curl": client_curl, "openai": client_openai, "aiperf": client_aiperf, "guidellm": client_guidellm}


def install(options, name):
    """The client's virtual environment; None, with a reason, if there is none."""
    if name == "curl":
        return shutil.which("curl") and ""
    folder = os.path.join(options.folder, name)
    if not glob.glob(os.path.join(folder, "installed")):
        say(f"installing {name} into {folder}")
        for command in ([sys.executable, "-m", "venv", folder], [os.path.join(folder, "bin", "pip"), "install", "-q", name]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                say(f"{name} cannot be installed here: {done.stderr.strip().splitlines()[-1:]}")
                return None
        open(os.path.join(folder, "installed"), "w").close()
    return folder


def compare(name, client, server, options):
    """Prints a row for each figure. Returns whether all agree."""
    fine = True
    for figure, own in server.seen().items():
        theirs = client.get(figure)
        if theirs is None or own is None:
            print(f"| {name} | {figure} | n/a | {own:.6g} | | |" if own is not None else f"| {name} | {figure} | n/a | n/a | | |")
            continue
        counted = not figure.endswith("ms")
        grace = 0 if counted else options.grace / options.tokens if figure == "itl ms" else options.grace
        agrees = theirs == own if counted else own * (1 - options.within) <= theirs <= own * (1 + options.within) + grace
        fine = fine and agrees
        print(f"| {name} | {figure} | {theirs:.6g} | {own:.6g} | {100 * (theirs / own - 1) if own else 0:+.2f} % | {'agrees' if agrees else 'DIFFERS'} |")
    return fine


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--qdyno", required=True)
    p.add_argument("--model", required=True, help="a GGUF file; one that needs some ms for a token, or the client's own work decides")
    p.add_argument("--folder", required=True, help="for virtual environments")
    p.add_argument("--only", action="append", choices=list(CLIENTS), help="client; may be repeated")
    p.add_argument("--requests", type=int, default=40)
    p.add_argument("--concurrency", type=int, default=4)
    p.add_argument("--tokens", type=int, default=64, help="of each answer")
    p.add_argument("--within", type=float, default=0.02, help="relative difference of times that is allowed")
    p.add_argument("--grace", type=float, default=3, help="ms of a request that may be the client's")
    p.add_argument("--patience", type=float, default=900, help="seconds for one client")
    p.add_argument("server", nargs="*", help="further arguments of qdyno serve, after --")
    options = p.parse_args()
    ran, fine = 0, True
    print("| client | figure | client's | server's | difference | |\n|---|---|---:|---:|---:|---|")
    for name in options.only or CLIENTS:
        folder = install(options, name)
        if folder is None:
            print(f"| {name} | not here | | | | |")
            continue
        with Server(options) as server:
            try:
                figures = CLIENTS[name](options, server, folder)
            except subprocess.CalledProcessError as e:
                say(f"{name} failed with status {e.returncode}:\n" + "\n".join((e.stderr or e.stdout or "").strip().splitlines()[-8:]))
                print(f"| {name} | failed | | | | |")
                fine = False
                continue
            except subprocess.TimeoutExpired:
                say(f"{name} did not end within {options.patience:.0f} s")
                fine = False
                continue
            time.sleep(0.2)
            ran += 1
            fine = compare(name, figures, server, options) and fine
    return 2 if not ran else 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
