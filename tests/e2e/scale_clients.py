#!/usr/bin/env python3
"""Clients of `qdyno serve --processes` for scale.sh: scale_clients.py TEST URL [SUPERVISOR ...].

Each test is a function; it raises AssertionError with what was found. All of them wait for conditions, as long as
PATIENCE_S, so that a busy machine makes them slow but not wrong."""
import http.client
import json
import os
import re
import signal
import sys
import threading
import time
from urllib.parse import urlsplit

PATIENCE_S = 120
BODY = {"prompt": "Once upon a time", "max_tokens": 200, "ignore_eos": True}


def ask(url, method, path, body=None):
    u = urlsplit(url)
    c = http.client.HTTPConnection(u.hostname, u.port, timeout=PATIENCE_S)
    try:
        c.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        return r.status, r.read().decode()
    finally:
        c.close()


def metrics(url):
    status, page = ask(url, "GET", "/metrics")
    assert status == 200, page
    return {m[1]: float(m[2]) for m in re.finditer(r"^(qdyno_serve_\S+) (\S+)$", page, re.M)}


def processes(supervisor):
    with open("/proc/%s/task/%s/children" % (supervisor, supervisor)) as f:
        return [int(p) for p in f.read().split()]


def until(look, what):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        got = look()
        if got:
            return got
        time.sleep(0.05)
    raise AssertionError("not within %d s: %s" % (PATIENCE_S, what))


class Load:
    """Clients that ask again and again, each on a new connection (or keep it), until stop()."""

    def __init__(self, url, clients, keep=False):
        self.url, self.stopping, self.statuses, self.errors = url, False, {}, []
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.keep if keep else self.work) for _ in range(clients)]
        for t in self.threads:
            t.start()

    def count(self, status):
        with self.lock:
            self.statuses[status] = self.statuses.get(status, 0) + 1

    def work(self):
        while not self.stopping:
            try:
                self.count(ask(self.url, "POST", "/v1/completions", BODY)[0])
            except (OSError, http.client.HTTPException) as e:
                with self.lock:
                    self.errors.append(repr(e))

    def keep(self):
        """One connection for many requests; a server may close it between two of them, which it announces."""
        u = urlsplit(self.url)
        c = http.client.HTTPConnection(u.hostname, u.port, timeout=PATIENCE_S)
        while not self.stopping:
            try:
                c.request("POST", "/v1/completions", json.dumps(BODY), {"Content-Type": "application/json"})
                r = c.getresponse()
                r.read()
                self.count(r.status)
            except (OSError, http.client.HTTPException) as e:
                with self.lock:
                    self.errors.append(repr(e))
                c.close()
        c.close()

    def stop(self):
        self.stopping = True
        for t in self.threads:
            t.join()
        return self.statuses, self.errors


def load(url, supervisor, most):
    """Up to the most, then down to one. No request fails, none is lost in the sums."""
    most = int(most)
    work, seen, before = [Load(url, 8), Load(url, 6, keep=True)], 1, {}

    def look():
        nonlocal seen, before
        m = metrics(url)
        for k, v in before.items():
            if k.endswith("_total") or "_total{" in k:
                assert m[k] >= v, (k, v, m[k])
        before = m
        seen = max(seen, m["qdyno_serve_processes"])
        assert seen <= most and len(processes(supervisor)) <= most, (seen, processes(supervisor))
        return m

    until(lambda: look()["qdyno_serve_processes"] == most, "%d processes" % most)
    end = time.monotonic() + 2
    while time.monotonic() < end:
        look()
    completed = 0
    for w in work:
        statuses, errors = w.stop()
        assert not errors and set(statuses) == {200}, (statuses, errors[:3])
        completed += statuses[200]
    until(lambda: look()["qdyno_serve_processes"] == 1 and len(processes(supervisor)) == 1, "one process again")
    m = metrics(url)
    assert m['qdyno_serve_requests_total{outcome="completed"}'] == completed, (m, completed)
    assert m["qdyno_serve_request_duration_seconds_count"] == completed, m
    assert m["qdyno_serve_generated_tokens_total"] == completed * BODY["max_tokens"], m
    assert m["qdyno_serve_requests_waiting"] == m["qdyno_serve_requests_running"] == 0, m
    up, down = (m['qdyno_serve_process_changes_total{direction="%s"}' % d] for d in ("up", "down"))
    assert up == down >= most - 1, (up, down)


def replaced(url, supervisor):
    """A process is killed while it serves: another one takes its place, and clients are answered."""
    before = metrics(url)
    (victim,) = processes(supervisor)
    os.kill(victim, signal.SIGKILL)
    until(lambda: victim not in processes(supervisor), "the end of the process")  # it may accept until then
    status, text = ask(url, "POST", "/v1/completions", BODY)  # waits for the new process
    assert status == 200, text
    until(lambda: [p for p in processes(supervisor) if p != victim], "another process")
    m = metrics(url)
    assert m['qdyno_serve_process_changes_total{direction="restart"}'] == 1, m
    completed = 'qdyno_serve_requests_total{outcome="completed"}'
    assert m[completed] == before[completed] + 1, (before, m)
    status, text = ask(url, "GET", "/health")
    assert status == 200 and json.loads(text)["processes"] == 1, text


def settings(url):
    status, text = ask(url, "POST", "/settings", {"schedule": "shortest"})
    assert status == 400 and "several processes" in text, (status, text)
    status, text = ask(url, "GET", "/load")
    d = json.loads(text)
    assert status == 200 and d["processes"] == 1 and d["outcomes"]["completed"] > 0, text


def reaches(url, supervisor, count):
    """So many processes, and no more while requests wait for two seconds."""
    work = Load(url, 12)
    until(lambda: metrics(url)["qdyno_serve_processes"] == int(count), "%s processes" % count)
    end = time.monotonic() + 2
    while time.monotonic() < end:
        assert len(processes(supervisor)) == int(count), processes(supervisor)
        time.sleep(0.1)
    statuses, errors = work.stop()
    assert not errors and set(statuses) == {200}, (statuses, errors[:3])


def stays(url, supervisor, log):
    """--dry-run: it says what it would do, twice, up to the limit; there is one process all the time."""
    one = processes(supervisor)
    work = Load(url, 8)
    until(lambda: open(log).read().count("not done: --dry-run") == 2, "two records")
    time.sleep(1)
    assert open(log).read().count("not done: --dry-run") == 2, open(log).read()
    assert processes(supervisor) == one, (one, processes(supervisor))
    statuses, errors = work.stop()
    assert not errors and set(statuses) == {200}, (statuses, errors[:3])
    m = metrics(url)
    assert m["qdyno_serve_processes"] == 1 and m['qdyno_serve_process_changes_total{direction="up"}'] == 0, m


def refused_memory(url, supervisor, log):
    """Requests wait, but there is no memory for another process: that is recorded, and requests are answered."""
    one = processes(supervisor)
    work = Load(url, 8)
    until(lambda: "not done: a process needs" in open(log).read(), "a record")
    statuses, errors = work.stop()
    assert not errors and set(statuses) == {200}, (statuses, errors[:3])
    assert processes(supervisor) == one, (one, processes(supervisor))


def drain(url, supervisor):
    """Streams that run in two processes when the server is told to stop are completed; no process remains."""
    all_processes = until(lambda: len(processes(supervisor)) == 2 and processes(supervisor), "two processes")
    until(lambda: metrics(url)["qdyno_serve_processes"] == 2, "two processes that serve")
    texts, u = [], urlsplit(url)
    begun = threading.Barrier(5)

    def stream():
        c = http.client.HTTPConnection(u.hostname, u.port, timeout=PATIENCE_S)
        body = {**BODY, "max_tokens": 480, "stream": True}
        c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        first = r.readline()
        begun.wait(PATIENCE_S)
        texts.append(first + r.read())
        c.close()

    threads = [threading.Thread(target=stream) for _ in range(4)]
    for t in threads:
        t.start()
    begun.wait(PATIENCE_S)
    os.kill(int(supervisor), signal.SIGTERM)
    for t in threads:
        t.join()
    assert len(texts) == 4 and all(t.endswith(b"data: [DONE]\n\n") for t in texts), [t[-100:] for t in texts]
    until(lambda: not [p for p in all_processes if os.path.exists("/proc/%d" % p)], "no process")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
