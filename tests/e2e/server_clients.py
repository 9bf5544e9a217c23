#!/usr/bin/env python3
"""Clients of `qdyno serve` for server.sh, with the standard library only: server_clients.py TEST URL [ARGUMENT...].

Each test is a function; it raises AssertionError with what was found."""
import http.client
import json
import os
import random
import re
import signal
import socket
import sys
import threading
import time
from urllib.parse import urlsplit

PATIENCE_S = 120  # for an answer, on a busy machine


class Client:
    def __init__(self, url, key=None):
        u = urlsplit(url)
        self.host, self.port, self.key = u.hostname, u.port, key

    def open(self, method, path, body=None, headers=()):
        c = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_S)
        h = {"Content-Type": "application/json", **dict(headers)}
        if self.key:
            h["Authorization"] = "Bearer " + self.key
        c.request(method, path, body if body is None or isinstance(body, (str, bytes)) else json.dumps(body), h)
        return c, c.getresponse()

    def ask(self, path, body, method="POST", headers=()):
        """Status, document, headers."""
        c, r = self.open(method, path, body, headers)
        text = r.read()
        c.close()
        return r.status, json.loads(text) if text.startswith(b"{") else text.decode(), dict(r.getheaders())

    def stream(self, path, body):
        """All events of a stream; the last one must be [DONE]."""
        c, r = self.open("POST", path, {**body, "stream": True})
        assert r.status == 200, (r.status, r.read())
        assert r.getheader("Content-Type").startswith("text/event-stream"), r.getheader("Content-Type")
        text = r.read().decode("utf-8")  # strict: a broken character fails
        c.close()
        events = [e for e in text.split("\n\n") if e]
        assert all(e.startswith("data: ") for e in events), events[:3]
        assert events[-1] == "data: [DONE]", events[-1]
        return [json.loads(e[6:]) for e in events[:-1]]

    def metrics(self):
        status, page, _ = self.ask("/metrics", None, "GET")
        assert status == 200, page
        return {m[1]: float(m[2]) for m in re.finditer(r"^(qdyno_\S+|process_\S+) (\S+)$", page, re.M)}

    def settle(self):
        """Waits until nothing runs and returns the figures."""
        for _ in range(600):
            m = self.metrics()
            if not m["qdyno_serve_requests_running"] and not m["qdyno_serve_requests_waiting"] and not m['qdyno_serve_kv_blocks{use="used"}']:
                return m
            time.sleep(0.1)
        raise AssertionError("requests or blocks remain: %s" % {k: v for k, v in m.items() if "serve" in k and "bucket" not in k})


PROMPT = "Once upon a time"


def completions(c):
    base = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0}
    status, one, _ = c.ask("/v1/completions", base)
    assert status == 200 and one["object"] == "text_completion" and one["id"].startswith("cmpl-"), one
    choice, usage, timings = one["choices"][0], one["usage"], one["timings"]
    assert choice["finish_reason"] in ("length", "stop") and choice["text"], one
    assert usage["completion_tokens"] == 40 if choice["finish_reason"] == "length" else usage["completion_tokens"] < 40
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"], usage
    assert timings["queue_ms"] >= 0 and timings["ttft_ms"] >= timings["queue_ms"] and timings["predicted_n"] == usage["completion_tokens"]
    # a stream is the same text, in pieces
    events = c.stream("/v1/completions", {**base, "stream_options": {"include_usage": True}})
    assert "".join(e["choices"][0]["text"] for e in events if e["choices"]) == choice["text"], events
    assert [e["choices"][0]["finish_reason"] for e in events if e["choices"]][-1] == choice["finish_reason"]
    assert all(e["usage"] is None for e in events[:-1]) and events[-1]["choices"] == [] and len(events) > 20
    assert events[-1]["usage"]["completion_tokens"] == usage["completion_tokens"], events[-1]
    assert len({e["id"] for e in events}) == 1
    # the prompt as ids; several prompts; several answers; the same seed gives the same text
    status, tokens, _ = c.ask("/tokenize", {"content": PROMPT})
    assert status == 200 and tokens["count"] == usage["prompt_tokens"] == len(tokens["tokens"]), (tokens, usage)
    status, again, _ = c.ask("/v1/completions", {**base, "prompt": tokens["tokens"]})
    assert again["choices"][0]["text"] == choice["text"], again
    status, text, _ = c.ask("/detokenize", {"tokens": tokens["tokens"]})
    assert text["content"].endswith(PROMPT), text
    many = {"prompt": [PROMPT, "One day", tokens["tokens"]], "n": 2, "max_tokens": 12, "seed": 7}
    status, some, _ = c.ask("/v1/completions", many)
    assert status == 200 and [x["index"] for x in some["choices"]] == list(range(6)), some
    texts = [x["text"] for x in some["choices"]]
    assert texts[0] != texts[1] and texts[0] == texts[4], texts  # another answer has another seed
    assert [x["text"] for x in c.ask("/v1/completions", many)[1]["choices"]] == texts
    streams = [""] * 6
    for e in c.stream("/v1/completions", many):
        streams[e["choices"][0]["index"]] += e["choices"][0]["text"]
    assert streams == texts, (streams, texts)
    # stop strings are not part of the text
    word = choice["text"].split()[3]
    status, cut, _ = c.ask("/v1/completions", {**base, "stop": [word, "never in the text"]})
    assert cut["choices"][0]["finish_reason"] == "stop" and cut["choices"][0]["text"] == choice["text"][: choice["text"].index(word)], cut
    events = c.stream("/v1/completions", {**base, "stop": word})
    assert "".join(e["choices"][0]["text"] for e in events) == cut["choices"][0]["text"], events
    # log-probabilities
    status, lp, _ = c.ask("/v1/completions", {**base, "max_tokens": 5, "logprobs": 3})
    l = lp["choices"][0]["logprobs"]
    assert "".join(l["tokens"]) == lp["choices"][0]["text"] and len(l["token_logprobs"]) == 5, l
    assert all(len(t) == 3 and abs(max(t.values()) - p) < 1e-5 for t, p in zip(l["top_logprobs"], l["token_logprobs"])), l
    assert l["text_offset"][0] == 0 and l["text_offset"][1] == len(l["tokens"][0]), l
    # a long prompt a second time: the prefix cache has it
    long = {**base, "prompt": PROMPT + ", there was a little girl who lived in a big house with a red door." * 6, "max_tokens": 4}
    c.ask("/v1/completions", long)
    status, cached, _ = c.ask("/v1/completions", long)
    assert cached["usage"]["prompt_tokens_details"]["cached_tokens"] >= 32, cached["usage"]
    assert cached["timings"]["cache_n"] + cached["timings"]["prompt_n"] == cached["usage"]["prompt_tokens"]
    # end tokens
    status, forced, _ = c.ask("/v1/completions", {"prompt": PROMPT, "max_tokens": 300, "ignore_eos": True, "temperature": 0})
    assert forced["usage"]["completion_tokens"] == 300, forced["usage"]
    status, least, _ = c.ask("/v1/completions", {"prompt": PROMPT, "max_tokens": 300, "min_tokens": 299, "temperature": 0})
    assert 299 <= least["usage"]["completion_tokens"] <= 300, least["usage"]


def chat(c):
    base = {"messages": [{"role": "user", "content": "Tell me a story"}], "max_tokens": 30, "temperature": 0}
    status, one, _ = c.ask("/v1/chat/completions", base)
    assert status == 200 and one["object"] == "chat.completion" and one["id"].startswith("chatcmpl-"), one
    message = one["choices"][0]["message"]
    assert message["role"] == "assistant" and message["content"], one
    events = c.stream("/v1/chat/completions", base)
    deltas = [e["choices"][0]["delta"] for e in events]
    assert deltas[0] == {"role": "assistant", "content": ""} and not any("role" in d for d in deltas[1:]), deltas
    assert "".join(d["content"] for d in deltas) == message["content"]
    parts = {**base, "messages": [{"role": "user", "content": [{"type": "text", "text": "Tell me "}, {"type": "text", "text": "a story"}]}]}
    assert c.ask("/v1/chat/completions", parts)[1]["choices"][0]["message"] == message
    status, lp, _ = c.ask("/v1/chat/completions", {**base, "max_completion_tokens": 4, "max_tokens": None, "logprobs": True, "top_logprobs": 2})
    content = lp["choices"][0]["logprobs"]["content"]
    assert len(content) == 4 and all(len(t["top_logprobs"]) == 2 and t["logprob"] <= 0 for t in content), content
    assert b"".join(bytes(t["bytes"]) for t in content).decode() == lp["choices"][0]["message"]["content"], content
    status, tokens, _ = c.ask("/tokenize", {"messages": base["messages"]})
    assert status == 200 and tokens["count"] == one["usage"]["prompt_tokens"], tokens


def errors(c):
    base = {"prompt": PROMPT, "max_tokens": 4}
    for status, path, body, code in (
        (400, "/v1/completions", "{", "invalid_json"),
        (400, "/v1/completions", {"prompt": PROMPT, "max_tokens": "x"}, "invalid_value"),
        (400, "/v1/completions", {**base, "colour": 1}, "unknown_field"),
        (404, "/v1/completions", {**base, "model": "gpt-9"}, "model_not_found"),
        (400, "/v1/completions", {**base, "max_tokens": 1 << 20}, "context_length_exceeded"),
        (400, "/v1/completions", {**base, "prompt": "word " * 20000}, "context_length_exceeded"),
        (400, "/v1/completions", {**base, "prompt": [1 << 30]}, "invalid_value"),
        (400, "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}, "no_chat_template"),
        (400, "/detokenize", {"tokens": [1 << 30]}, "invalid_value"),
        (413, "/v1/completions", "x" * 2000000, "too_large"),
        (404, "/v1/nowhere", base, "not_found"),
        (405, "/metrics", base, "method_not_allowed"),
    ):
        got, document, headers = c.ask(path, body)
        assert got == status and document["error"]["code"] == code and document["error"]["message"], (path, got, document)
        assert headers["Content-Type"] == "application/json"
        if code == "no_chat_template":
            assert "--template with a file or one of these names: chatml" in document["error"]["message"], document
    got, document, headers = c.ask("/v1/completions", None, "GET")
    assert got == 405 and headers["Allow"] == "POST", headers
    got, document, _ = c.ask("/v1/completions", base, headers={"Origin": "https://example.com"})
    assert got == 403, document
    # a name of the Internet that leads to this machine; names of this machine
    for path, method in (("/metrics", "GET"), ("/load", "GET"), ("/health", "GET"), ("/v1/models", "GET"), ("/v1/completions", "POST")):
        got, document, _ = c.ask(path, base if method == "POST" else None, method, {"Host": "example.com:%d" % c.port})
        assert got == 403 and "example.com" in document["error"]["message"], (path, got, document)
    for host in ("localhost", "127.0.0.1:%d" % c.port, "[::1]:80"):
        assert c.ask("/v1/models", None, "GET", {"Host": host})[0] == 200, host
    status, models, _ = c.ask("/v1/models", None, "GET")
    name = models["data"][0]["id"]
    assert status == 200 and c.ask("/v1/models/" + name, None, "GET")[0] == 200 and c.ask("/v1/models/x", None, "GET")[0] == 404
    assert c.ask("/v1/completions", {**base, "model": name})[0] == 200
    status, health, _ = c.ask("/health", None, "GET")
    assert status == 200 and health["status"] == "ok" and health["running"] == 0, health
    # a request that is no HTTP
    s = socket.create_connection((c.host, c.port))
    s.sendall(b"complete nonsense\r\n\r\n")
    assert b" 200 " not in s.recv(4096)
    s.close()


def key(c, right):
    assert c.ask("/v1/models", None, "GET")[0] == 401
    assert c.ask("/load", None, "GET")[0] == 401
    assert c.ask("/settings", {"schedule": "static"})[0] == 401
    status, document, headers = c.ask("/v1/completions", {"prompt": PROMPT})
    assert status == 401 and document["error"]["type"] == "authentication_error" and headers["WWW-Authenticate"] == "Bearer"
    for wrong in (right[:-1], right + "x", "x" * len(right)):
        assert Client("http://%s:%d" % (c.host, c.port), wrong).ask("/metrics", None, "GET")[0] == 401
    health = c.ask("/health", None, "GET")
    assert health[0] == 200 and health[1] == {"status": "ok"}, health  # without the key: no figures
    c.key = right
    assert c.ask("/v1/completions", {"prompt": PROMPT})[0] == 200
    assert "running" in c.ask("/health", None, "GET")[1]
    assert c.ask("/v1/completions", {"prompt": PROMPT}, headers={"Origin": "https://example.com", "Host": "example.com"})[0] == 200


def settings(c):
    """What can change while it runs does, also while requests are served; the rest is refused and changes nothing."""
    def now():
        status, page, _ = c.ask("/load", None, "GET")
        assert status == 200 and page["status"] == "ok", page
        return page, dict(x.split("=") for x in page["load"]["settings"].split(","))

    stop = threading.Event()
    failed = []

    def work(seed):
        rng = random.Random(seed)
        while not stop.is_set():
            status, answer, _ = c.ask("/v1/completions", {"prompt": PROMPT, "max_tokens": rng.randrange(1, 60), "ignore_eos": True})
            if status != 200:
                failed.append((status, answer))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    want = now()[1]
    rng = random.Random(1)
    for _ in range(12):
        change = {k: rng.choice(v) for k, v in {"schedule": ("fcfs", "prefill_first", "priority", "shortest", "static", "dynamic"), "evict": ("lru", "lifo"),
                                                "prefix_cache": ("on", "off"), "max_sequences": (1, 3, 8), "itl_limit": ("50ms", 0)}.items() if rng.random() < 0.4}
        status, answer, _ = c.ask("/settings", change)
        assert status == 200, answer
        want.update({k: str(v).removesuffix("ms") for k, v in change.items()})
        for _ in range(600):
            page, have = now()
            if have == want:
                break
            time.sleep(0.05)
        assert have == want, (have, want)
    assert page["load"]["steps"] > 0 and page["load"]["first_token"]["n"] > 0 and len(page["occupancy"]["map"]) == page["occupancy"]["blocks"], page
    for wrong in ({"threads": 2}, {"schedule": "fastest"}, {"max_sequences": 9}, {"max_sequences": 0}, {"evict": ["lru"]}, ["evict"], "{"):
        status, answer, _ = c.ask("/settings", wrong)
        assert status == 400 and answer["error"]["code"] == "invalid_setting", (wrong, answer)
    assert c.ask("/settings", {}, "GET")[0] == 405
    assert c.ask("/settings", {"schedule": "fcfs"}, headers={"Origin": "https://example.com"})[0] == 403
    stop.set()
    for t in threads:
        t.join()
    assert not failed, failed[:3]
    assert now()[1] == want
    c.settle()


def fills(c, most):
    """Answers without max_tokens fill the context as far as the KV cache has room; longer ones are refused by their number."""
    models = c.ask("/v1/models", None, "GET")[1]
    assert models["data"][0]["max_model_len"] == int(most), models
    body = {"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": True, "temperature": 0}
    for _ in range(2):  # the second one finds the blocks of the first in the cache
        status, answer, _ = c.ask("/v1/chat/completions", body)
        assert status == 200 and answer["usage"]["total_tokens"] == int(most), (status, answer)
    prompt = answer["usage"]["prompt_tokens"]
    status, answer, _ = c.ask("/v1/chat/completions", {**body, "max_tokens": int(most) - prompt + 1})
    assert status == 400 and answer["error"]["code"] == "context_length_exceeded" and str(most) in answer["error"]["message"], answer
    c.settle()


def some_levels(c, most):
    """Settings that one of the configs of govern cannot have are refused, and none is changed."""
    assert c.ask("/v1/models", None, "GET")[1]["data"][0]["max_model_len"] == int(most)
    status, answer, _ = c.ask("/settings", {"max_sequences": 2, "schedule": "shortest"})
    assert status == 400 and answer["error"]["code"] == "invalid_setting", answer
    assert c.ask("/settings", {"max_sequences": 1, "schedule": "shortest"})[0] == 200


def governed(c, last):
    """Many clients at once, until the server has switched to config `last`: everyone gets the whole answer, and a long answer that was begun
    before ends, too."""
    want = 60
    failed, counted = [], []
    stop = threading.Event()

    def ask(body):
        status, answer, _ = c.ask("/v1/completions", body)
        counted.append(status)
        if status != 200 or answer["usage"]["completion_tokens"] != body["max_tokens"]:
            failed.append((status, answer))

    def work(seed):
        rng = random.Random(seed)
        while not stop.is_set():
            ask({"prompt": PROMPT * rng.randrange(1, 9), "max_tokens": rng.randrange(1, want), "ignore_eos": True, "temperature": 0})

    long = threading.Thread(target=ask, args=({"prompt": "One day", "max_tokens": 450, "ignore_eos": True},))
    threads = [long] + [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for _ in range(1200):
        config = c.ask("/load", None, "GET")[1]["config"]
        if config.startswith(last):
            break
        time.sleep(0.1)
    stop.set()
    for t in threads:
        t.join()
    assert config.startswith(last), config
    assert not failed, failed[:3]
    m = c.settle()
    assert m['qdyno_serve_requests_total{outcome="completed"}'] == len(counted), (m, len(counted))


def one_of_each(c):
    status, one, _ = c.ask("/v1/completions", {"prompt": PROMPT, "max_tokens": 20, "ignore_eos": True})
    assert status == 200, one
    assert c.ask("/v1/completions", {"prompt": PROMPT, "max_tokens": -1})[0] == 400


def goodput(c, met, missed):
    m = c.settle()
    got = [m['qdyno_serve_goodput_requests_total{met="%s"}' % x] for x in ("yes", "no")]
    assert got == [float(met), float(missed)], got


def begin(c, body):
    """Sends a request and returns its connection; nothing is read."""
    h = http.client.HTTPConnection(c.host, c.port, timeout=PATIENCE_S)
    h.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    return h


LONG = {"prompt": PROMPT, "max_tokens": 400, "ignore_eos": True}


def until(c, condition):
    for _ in range(600):
        m = c.metrics()
        if condition(m):
            return m
        time.sleep(0.05)
    raise AssertionError({k: v for k, v in m.items() if "serve" in k and "bucket" not in k})


def overload(c):
    """The server computes one request at a time and lets one wait."""
    running = begin(c, LONG)
    until(c, lambda m: m["qdyno_serve_requests_running"] == 1)
    waiting = begin(c, LONG)
    until(c, lambda m: m["qdyno_serve_requests_waiting"] == 1)
    status, document, headers = c.ask("/v1/completions", LONG)
    assert status == 429 and int(headers["Retry-After"]) >= 1 and document["error"]["type"] == "rate_limit_error", (status, document, headers)
    # a client that waits goes away: another one has its place
    waiting.close()
    until(c, lambda m: m["qdyno_serve_requests_waiting"] == 0)
    waiting = begin(c, LONG)
    # a client that does not stream goes away while its answer is computed
    running.close()
    until(c, lambda m: m['qdyno_serve_requests_total{outcome="cancelled"}'] == 2)
    assert waiting.getresponse().status == 200
    m = c.settle()
    assert m['qdyno_serve_requests_total{outcome="overloaded"}'] == 1 and m['qdyno_serve_requests_total{outcome="completed"}'] == 1


SLOW = {"prompt": PROMPT, "max_tokens": 1500, "ignore_eos": True, "stream": True}


def drain(c, pid):
    """A stream that runs when the server is told to stop has its whole answer; nobody else gets one."""
    h, r = c.open("POST", "/v1/completions", SLOW)
    text = r.readline()
    assert text.startswith(b"data: "), text
    os.kill(int(pid), signal.SIGTERM)
    while c.ask("/health", None, "GET")[0] == 200:
        time.sleep(0.005)
    status, document, headers = c.ask("/v1/completions", LONG)
    assert status == 503 and document["error"]["code"] == "stopping", (status, document)
    status, health, _ = c.ask("/health", None, "GET")
    assert status == 503 and health["status"] == "stopping" and health["running"] == 1, (status, health)
    text += r.read()
    assert text.endswith(b"data: [DONE]\n\n"), text[-200:]


def cut_off(c, pid):
    """A stream that --drain ends before its answer is complete: an error, no [DONE]."""
    h, r = c.open("POST", "/v1/completions", SLOW)
    assert r.readline().startswith(b"data: ")
    os.kill(int(pid), signal.SIGTERM)
    text = r.read().decode()
    events = [json.loads(e[6:]) for e in text.split("\n\n") if e.startswith("data: {")]
    assert events[-1]["error"]["code"] == "stopping" and "[DONE]" not in text, events[-1]


def killed(c, pid):
    """Two signals: the stream breaks off."""
    h, r = c.open("POST", "/v1/completions", SLOW)
    assert r.readline().startswith(b"data: ")
    os.kill(int(pid), signal.SIGINT)
    while c.ask("/health", None, "GET")[0] == 200:
        time.sleep(0.005)
    os.kill(int(pid), signal.SIGINT)
    try:
        text = r.read()
    except (http.client.IncompleteRead, ConnectionError):
        return
    assert b"[DONE]" not in text, text[-200:]


def random_requests(c, count, seed, quiet=False):
    """Requests of all kinds; many clients go away at a random moment. Every one ends as one outcome."""
    count, rng = int(count), random.Random(int(seed))
    before = c.settle()
    results, lock, todo = {}, threading.Lock(), list(range(count))
    words = "Once upon a time there was a little dog and the sun was big so they ran home to see mom".split()

    def one(i, rng):
        prompt = " ".join(rng.choice(words) for _ in range(rng.choice((3, 10, 60, 150))))
        body = {"prompt": prompt, "max_tokens": rng.choice((1, 5, 30, 120)), "ignore_eos": rng.random() < 0.5, "n": rng.choice((1, 1, 1, 2)),
                "temperature": rng.choice((0, 1)), "seed": i, "stream": rng.random() < 0.6, "priority": rng.randrange(3)}
        if rng.random() < 0.1:
            body["prompt"] = "word " * 5000
        patience = rng.choice((None, None, rng.random() * 0.02, rng.random() * 0.3))
        h = begin(c, body)
        if patience is not None and not rng.randrange(3):
            h.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closing resets the connection
        if patience is not None and rng.random() < 0.5:
            time.sleep(patience)
            h.close()
            return "left"
        r = h.getresponse()
        if patience is not None:
            r.read(rng.randrange(200)) if rng.random() < 0.5 else time.sleep(patience)
            h.close()
            return "left"
        text = r.read()
        h.close()
        assert r.status in (200, 400, 429), (r.status, text)
        if r.status == 200 and body["stream"]:
            assert text.endswith(b"data: [DONE]\n\n"), text[-100:]
        elif r.status == 200:
            assert len(json.loads(text)["choices"]) == body["n"]
        return {200: "completed", 400: "refused", 429: "overloaded"}[r.status]

    def work(seed):
        rng = random.Random(seed)
        while True:
            with lock:
                if not todo:
                    return
                i = todo.pop()
            result = one(i, rng)
            with lock:
                results[result] = results.get(result, 0) + 1

    threads = [threading.Thread(target=work, args=(rng.random(),)) for _ in range(24)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    after = c.settle()
    ended = {k.split('"')[1]: after[k] - before[k] for k in after if k.startswith("qdyno_serve_requests_total")}
    if not quiet:
        print(results, ended)
    assert sum(results.values()) == count, results
    # a connection that is reset can take its request along before the server has read it
    assert count - results.get("left", 0) <= sum(ended.values()) <= count, (results, ended)
    assert ended["failed"] == ended["stopped"] == 0, ended
    # who left may have been completed, refused or cancelled; who stayed knows
    for outcome in ("completed", "refused", "overloaded"):
        assert ended[outcome] >= results.get(outcome, 0), (results, ended)
    assert ended["cancelled"] <= results.get("left", 0) and ended["cancelled"] > 0, (results, ended)


def memory(c, count, seed):
    """After the same number of requests again, the process is not larger."""
    random_requests(c, count, seed)
    first = c.metrics()["process_resident_memory_bytes"]
    random_requests(c, count, int(seed) + 1)
    second = c.metrics()["process_resident_memory_bytes"]
    print("resident %.1f MB, then %.1f MB" % (first / 1e6, second / 1e6))
    assert second < first * 1.1 + 4e6, (first, second)


if __name__ == "__main__":
    globals()[sys.argv[1]](Client(sys.argv[2]), *sys.argv[3:])
