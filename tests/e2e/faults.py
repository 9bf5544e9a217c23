#!/usr/bin/env python3
"""Every allocation and every call of the system fails once in turn, through whole commands.

    faults.py QDYNO FAULTS.so [--quick | --all] [--only COMMAND] [--class CLASS] [--from FILE] [--most K] [--errno EIO]

First each command runs undisturbed and its calls are counted; then it runs once for each call, and that call fails
(faults.c). Checked after each run: the exit status is the documented one for that kind of fault, the message says what
failed, status 0 comes with the whole result, no file or process is left, no process died of a signal, the database is
whole and has all its cells, and no run is left "running". Without --all at most K calls (--most) of each class and command fail, the same ones each
time. If QDYNO was built with -fsanitize=leak or address, a report of the sanitizer is a finding, too (FAULTS.so is then of a
build without).
"""
import argparse, bisect, collections, ctypes, errno, hashlib, http.client, http.server, json, os, re, shutil, signal
import sqlite3, struct, subprocess, sys, tempfile, threading, time

CLASSES = ["alloc", "open", "read", "write", "sync", "rename", "process", "connect", "map", "thread"]
RECORD = struct.Struct("10QQq32s")  # struct record of faults.c
TIME_LIMIT_S = 60

AB = ("ab -q -m {m} default kv=f32 -w tg4 --max-blocks 6 --control 0 --warmup 1 --processes kept --turns off -o json")
# name, arguments; {t} is the folder of the run, {m} a model, {f} one with f16 weights, {url} the server that takes all,
# {off} a file that switches off every alert, because a busy machine raises some; {chat} a chat template
COMMANDS = {
    "info": "info -m {m} -o json",
    "fit": "fit -m {m} -o json",
    "run": "run -m {m} -p a -n 4 -t 2",
    "quantize": "quantize {f} {t}/out.gguf -R q4_0 -t 2 -o json",
    "plugin": "quantize {f} {t}/out.gguf -R refit:u4_g32 --plugin {plugin} -t 2 -o json",
    "history": "history -o json",
    "show": "show 1 -o json",
    "report": "report 1 --out {t}/out.html",
    "push": "push 1 --url {url} -o json",
    "textfile": "push --textfile {t}/out.prom -o json",
    "eval": "eval -q -m {m} -f {t}/text -c 16 --chunks 2 -C default --ref kv=f32 -o json",
    "bench": "bench -q -m {m} -p 0 -n 4 -r 1 --no-warmup -o json",
    "load": "bench -q -m {m} -w load:concurrency=2,requests=4,in=8,out=3,prefix=0.5 -C max_sequences=2 -r 1 --no-warmup -o json",
    "watch": "watch --alerts {off} -m {m} --once -r 1 -w tg4 --even-if-busy --push {url} -o jsonl",
    "serve": "serve -m {m} -c 64 --port 0 --template {chat} -o json",
    "ab": AB,
}
LIBRARIES = ["libsqlite3", "libjansson", "libcurl", "libmicrohttpd"]

# What the served model is asked: path, body. All of it twice, because a server works on after a call has failed.
REQUESTS = [
    ("/v1/models", None),
    ("/v1/completions", {"prompt": "hello there", "max_tokens": 3, "temperature": 0}),
    ("/v1/completions", {"prompt": "hello there", "max_tokens": 3, "temperature": 0, "stream": True}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3, "temperature": 0, "logprobs": True}),
    ("/metrics", None),
    ("/health", None),
]
REQUEST_S = 20

# What exit status a fault may have: limits of memory, disk and processes are 6, a network that fails is 7, and a file
# that cannot be read or written is 5.
STATUS_OF = {errno.ENOMEM: {6}, errno.ENOSPC: {6}, errno.EAGAIN: {6}, errno.EMFILE: {5, 6}, errno.ENOLCK: {5, 6},
             errno.EIO: {5}, errno.EPERM: {5}, errno.EINVAL: {5}, errno.ECONNREFUSED: {7}, errno.ECONNRESET: {7},
             errno.EADDRINUSE: {7}}

# Commands whose figures differ from run to run: only their names are compared.
MEASURING = ("bench", "load", "watch", "ab")
# Figures of the machine, which other programs change at any time, however often they were equal before.
CHANGING = ("available_bytes", "seconds", "ctx_most")

# A percentile of so few tokens can be without an interval, and is then left out.
RARE = ("itl_p95_s", "itl_p99_s")

# What a command can do without, by a function on the stack of the fault: status and result are then as they are.
OPTIONAL = {
    "read_raw": "a sensor that cannot be read is unknown",
    "process_read": "figures of the own process that cannot be read are unknown",
    "sys_list": "a folder of sensors that cannot be read has none",
    "model_trained_context": "the note about the trained context is left out where that is unknown",
    "phase_add_cell": "a percentile over fewer tokens: itl_samples says how many",
    "git_describe": "a run outside of a checkout has no label 'commit'",
}
# A broken channel between the program and its worker is an error of the program.
CHANNEL = {"send", "recv"}
# The C library keeps that writing to a stream failed, not why.
STREAM = {"fwrite", "fputs", "fflush"}


class Server(http.server.BaseHTTPRequestHandler):
    def take(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_PUT = do_POST = do_DELETE = take

    def log_message(self, *_):
        pass


def serve():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return "http://127.0.0.1:%d" % server.server_port


def ask(port, path, body):
    """An answer as its HTTP status and what of it is the same each time; (None, reason): there was none."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=REQUEST_S)
    try:
        client.request("POST" if body else "GET", path, json.dumps(body) if body else None,
                       {"Content-Type": "application/json"} if body else {})
        answer = client.getresponse()
        text = answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as e:
        return None, type(e).__name__
    finally:
        client.close()
    if path == "/metrics" and answer.status == 200:
        return answer.status, " ".join(sorted(set(re.findall(r"^# TYPE (\S+)", text, re.M))))
    # an earlier request that failed leaves less in the prefix cache; one that was just answered may still hold blocks
    changing = "id|created|cached_tokens|timings|running|waiting|kv_blocks_used|kv_blocks_cached"
    return answer.status, re.sub(r'"(%s)": ?("[^"]*"|\d+|{[^}]*})' % changing, "", text)


def use_server(process, printed):
    """Asks the server all REQUESTS twice when it has printed its address, and stops it. Returns the answers."""
    while process.poll() is None:
        with open(printed) as f:
            port = re.search(r'"url": *"http://127.0.0.1:(\d+)/v1"', f.read())
        if port:
            answers = [ask(int(port[1]), *request) for request in REQUESTS * 2]
            process.send_signal(signal.SIGTERM)
            return answers
        time.sleep(0.005)
    return []


class Symbols:
    """Names of the program's functions by address."""

    def __init__(self, program):
        lines = [line.split() for line in subprocess.run(["nm", program], capture_output=True, text=True).stdout.splitlines()]
        self.table = sorted((int(x[0], 16), x[2]) for x in lines if len(x) == 3 and x[1] in "tT")

    def name(self, address):
        i = bisect.bisect(self.table, (address, "~")) - 1
        return self.table[i][1] if i >= 0 else "?"

    def stack(self, text):
        """The functions on the stack, innermost first."""
        names = []
        for line in text.splitlines()[1:]:
            at = re.match(r"(\S+?)\((\S*)\+0x([0-9a-f]+)\)", line)
            if not at:
                continue
            if os.path.basename(at[1]).startswith("qdyno"):
                names.append(at[2] or self.name(int(at[3], 16)))
            elif not at[1].endswith("faults.so") and "libfaults" not in at[1]:
                names.append(os.path.basename(at[1]).split(".so")[0] + ":" + at[2])
        return names


def flatten(value, path="", out=None):
    out = {} if out is None else out
    if isinstance(value, dict):
        for k, v in value.items():
            flatten(v, path + "." + k, out)
    elif isinstance(value, list):
        for i, v in enumerate(value):
            flatten(v, "%s[%d]" % (path, i), out)
    else:
        out[path] = value
    return out


def parts(text, measuring=False):
    """A result as a dictionary: leaves of a JSON document or of all JSON lines, or words. Without values where these are measured."""
    try:
        lines = [text] if text.startswith("{\n") else text.splitlines()
        leaves = flatten({k: v for line in lines for k, v in json.loads(line).items()})
    except (ValueError, AttributeError):
        return dict(enumerate(text.split()))
    if not measuring:
        return leaves
    names = {}  # null stays null, unless another of the same name has a value
    for k, v in leaves.items():
        name = ".".join(k.split(".")[:3]).split("[")[0]
        names[name] = names.get(name) if v is None else True
    return names


class Result:
    """What undisturbed runs have in common. measuring: only names are compared, and a figure may become known."""

    def __init__(self, runs, measuring):
        self.measuring = measuring
        self.values = dict(runs[0])
        self.unstable = {k for r in runs for k in set(r) | set(runs[0]) if r.get(k, self) != runs[0].get(k, self)}

    def difference(self, got):
        for k, v in self.values.items():
            if str(k).endswith(RARE):
                continue
            if k not in got and k not in self.unstable or got.get(k) is None and v is not None:
                return "%s is missing" % (k,)
            if self.measuring and v is None:
                continue
            if k not in self.unstable and not str(k).endswith(CHANGING) and got[k] != v:
                return "%s is %.60r, want %.60r" % (k, got[k], v)
        # null is unknown, which a message has told
        extra = [k for k in got if got[k] is not None and k not in self.values and k not in self.unstable]
        return "%s is new" % extra[0] if extra else None


class Tester:
    def __init__(self, a):
        self.a = a
        self.program, self.faults = os.path.abspath(a.qdyno), os.path.abspath(a.faults)
        self.plugin = os.path.join(os.path.dirname(self.faults), "../plugins/refit.so")
        for target, path in (("faults", self.faults), ("plugin_refit", self.plugin)):
            if not os.path.exists(path):
                sys.exit("%s is missing: build the target %s" % (path, target))
        self.t = tempfile.mkdtemp(prefix="qdyno-faults-")
        self.symbols = Symbols(self.program)
        self.url = serve()
        self.findings = {}
        self.injected = collections.Counter()
        # orphans of the program become children of this process
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
        self.prepare()

    def path(self, *names):
        return os.path.join(self.t, *names)

    def environment(self, home, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("QDYNO_", "OTEL_", "XDG_"))}
        log = "log_path=" + self.path("sanitizer")
        known = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lsan.supp")
        return dict(env, HOME=home, XDG_DATA_HOME=home + "/data", XDG_CACHE_HOME=home + "/cache",
                    XDG_CONFIG_HOME=home + "/config", LC_ALL="C.UTF-8",
                    LSAN_OPTIONS="exitcode=0:print_suppressions=0:suppressions=%s:%s" % (known, log),
                    ASAN_OPTIONS="verify_asan_link_order=0:allocator_may_return_null=1:handle_abort=1:" + log, **more)

    def prepare(self):
        """The folder that every run starts from: models, a text, and a database with an experiment."""
        here = os.path.dirname(os.path.abspath(__file__))
        home = self.path("start")
        os.makedirs(home)
        shutil.copy(os.path.join(here, "../fuzz/corpus/fuzz_gguf/llama.gguf"), self.path("m.gguf"))
        with open(self.path("chat"), "w") as f:
            f.write("{% for m in messages %}{{ m.content }} {% endfor %}")
        with open(home + "/text", "w") as f:
            f.write("hello there, a b c hello hello there this is a longer text\n")
        for line in ("synth -q --shape tiny -R f16 %s" % self.path("f.gguf"),
                     AB.format(m=self.path("m.gguf"), t=home, f="", url="")):
            got = subprocess.run([self.program] + line.split(), env=self.environment(home), capture_output=True, text=True)
            if got.returncode not in (0, 1, 2):
                sys.exit("cannot prepare: %s: %s" % (line, got.stderr))
        alerts = subprocess.run([self.program, "watch", "--print-alerts", "-o", "csv"], env=self.environment(home), capture_output=True,
                                text=True).stdout.splitlines()[1:]
        with open(self.path("off"), "w") as f:
            f.writelines(line.split(",")[0].strip('"') + "=off\n" for line in alerts)
        with sqlite3.connect(home + "/data/qdyno/qdyno.db") as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self.cells = db.execute("SELECT count(*), max(id) FROM cell").fetchone()
        db.close()

    def once(self, command, fault=None, preload=True):
        """Runs a command in a fresh folder. Returns what it did."""
        home = self.path("run")
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(self.path("start"), home)
        log = self.path("log")
        for path in (log, log + ".crash"):
            if os.path.exists(path):
                os.unlink(path)
        env = self.environment(home)
        if preload:
            env.update(LD_PRELOAD=self.faults, FAULT_LOG=log, **(fault or {}))
        args = [x.format(t=home, m=self.path("m.gguf"), f=self.path("f.gguf"), url=self.url, plugin=self.plugin, off=self.path("off"),
                         chat=self.path("chat")) for x in COMMANDS[command].split()]
        run = {"hang": False, "home": home, "args": args, "answers": []}
        with open(self.path("out"), "w") as out:
            p = subprocess.Popen([self.program] + args, env=env, cwd=home, stdin=subprocess.DEVNULL, stdout=out,
                                 stderr=subprocess.PIPE, start_new_session=True)
        limit = threading.Timer(TIME_LIMIT_S, os.killpg, (p.pid, signal.SIGKILL))
        limit.start()
        if command == "serve":
            run["answers"] = use_server(p, self.path("out"))
        _, err = p.communicate()
        run["hang"] = p.returncode == -signal.SIGKILL
        limit.cancel()
        with open(self.path("out"), "rb") as f:
            out = f.read()
        run["left"] = self.orphans()
        run["crashes"] = self.crashes(log + ".crash")
        run.update(status=p.returncode, out=out.decode(errors="replace"), err=err.decode(errors="replace"))
        if preload:
            raw = open(log, "rb").read() if os.path.exists(log) else bytes(RECORD.size)  # no such process
            record = RECORD.unpack_from(raw)
            run.update(calls=dict(zip(CLASSES, record[:10])), failed=record[10], errno=record[11], function=record[12].rstrip(b"\0").decode(),
                       stack=self.symbols.stack(raw[RECORD.size:].decode(errors="replace")))
        return run

    def crashes(self, path):
        """The signals that processes of the command died of, with the stack."""
        text = open(path, errors="replace").read() if os.path.exists(path) else ""
        return ["signal %s in %s" % (x.split("\n", 1)[0], " < ".join(self.symbols.stack("\n" + x.partition("\n")[2])[:8]))
                for x in text.split("signal ")[1:]]

    def orphans(self):
        """Processes that the command left behind, which are ours now. They are ended."""
        left = []
        until = time.monotonic() + 5  # a worker whose parent ended is being killed by the kernel
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return left
            if pid:
                continue
            if time.monotonic() > until:
                with open("/proc/self/task/%d/children" % os.getpid()) as f:
                    for child in f.read().split():
                        left.append(child)
                        os.kill(int(child), signal.SIGKILL)
                until += 60
            time.sleep(0.005)

    def files(self, home):
        """Contents of the files below a folder, but of the database."""
        found = {}
        for folder, _, names in os.walk(home):
            for name in names:
                path = os.path.join(folder, name)
                if not name.startswith("qdyno.db"):
                    found[os.path.relpath(path, home)] = open(path, "rb").read()
        return found

    def database(self, home):
        """What is wrong with the database; None: nothing."""
        db = sqlite3.connect(home + "/data/qdyno/qdyno.db")
        try:
            for check in ("integrity_check", "foreign_key_check"):
                got = db.execute("PRAGMA " + check).fetchall()
                if got not in ([], [("ok",)]):
                    return "%s: %s" % (check, got[:2])
            if db.execute("SELECT count(*) FROM cell WHERE id <= ?", (self.cells[1],)).fetchone()[0] != self.cells[0]:
                return "committed cells are lost"
            running = db.execute("SELECT id, kind FROM run WHERE state = 'running'").fetchall()
            return "run %d (%s) is left running" % running[0] if running else None
        except sqlite3.Error as e:
            return str(e)
        finally:
            db.close()

    def unanswered(self, base, run):
        """What is wrong with the answers of a server. One request may fail, or all that follow if the server then
        ends with an error; each client is told, if that is possible."""
        wrong = [(i, got) for i, (got, want) in enumerate(zip(run["answers"], base["answers"])) if got != want]
        if OPTIONAL.keys() & set(run["stack"]):
            return
        for i, (status, text) in wrong:
            ends = any('"status":"%s"' % word in text for word in ("failed", "stopping"))  # what /health says
            ended = ends and run["status"] != base["status"]
            if status is not None and '"error"' not in text and not ended:
                yield "request %d is answered with status %s: %.200s" % (i, status, text)
        if len(wrong) > 1 and run["status"] == base["status"]:
            yield "requests fail: %s" % ", ".join("%d (%s)" % (i, got[0] or got[1]) for i, got in wrong)

    def problems(self, command, base, run):
        """What is wrong with a run in which a call failed."""
        home = run["home"]
        number = run["errno"]
        files = self.files(home)
        same = run["status"] == base["status"]
        if run["hang"]:
            yield "does not end"
        yield from self.unanswered(base, run)
        if run["left"]:
            yield "leaves %d processes" % len(run["left"])
        for crash in run["crashes"]:
            yield "a process dies of " + crash
        said = re.search(r"(died of|crashed with) signal \d+", run["err"] + run["out"])
        if said and not run["crashes"]:  # a process without our handler, as that of a plug-in
            yield "it says: " + said[0]
        wanted = STATUS_OF[number] | {base["status"]}
        if run["library"] and "--url" in run["args"]:
            wanted = wanted | {7}  # libcurl reports such faults as a host that cannot be reached: retrying may help
        if run["function"] in CHANNEL:
            wanted = wanted | {70}
        if command == "plugin" and run["function"] in ("write", "dup2"):
            wanted = wanted | {5}  # the process of a plug-in ends without an answer
        if run["function"] in STREAM:
            wanted = wanted | {5, 6}
        optional = OPTIONAL.keys() & set(run["stack"])
        text = os.strerror(number)
        said = run["err"] + (run["out"] if command == "watch" else "")  # a watch reports a failure as a line, and goes on
        told = text in said or number == errno.EADDRINUSE and "another program uses this port" in said or number == errno.ENOMEM and "memory" in said or (
            command == "watch" and (run["function"] in CHANNEL or run["library"]) and '"event":"failed"' in said) or (
            command == "plugin" and run["function"] in ("write", "dup2") and "ended its process" in said)
        # libraries report what failed in their own words
        warned = told or run["library"] and re.search(r"^qdyno: warning: .*\w", run["err"], re.M)
        wanted = wanted | ({1, 3} if command == "watch" and told else set())  # 3: nothing could be measured
        if run["status"] not in wanted:
            yield "status %d after %s" % (run["status"], errno.errorcode[number])
        if same:
            different = base["result"].difference(parts(run["out"], command in MEASURING))
            if different and not optional and not (warned and different.endswith("missing")):  # unknown is null
                yield "status %d, but %s" % (run["status"], re.sub(r"\[\d+\]", "[]", different))
            for name, content in base["files"].items():
                if name not in files and not name.startswith("cache/"):  # without its cache it is only slower
                    yield "status %d without %s" % (run["status"], name)
                elif content is not None and files.get(name, content) != content and not optional:
                    yield "status %d with another %s" % (run["status"], name)
        elif not re.search(r"^qdyno\b.*: .*\w", run["err"], re.M) and not (command == "watch" and told):
            yield "no message"
        elif not run["hang"]:
            # libraries report what failed in their own words
            if not told and not run["library"] and run["function"] not in CHANNEL | STREAM:
                yield "the message does not say '%s'" % text
        for name, content in files.items():
            if name in self.start_files:
                continue
            if name not in base["files"] and not (command in ("quantize", "plugin") and name == "out.gguf.partial"):
                yield "leaves the file %s" % re.sub(r"\.tmp\.\w+$", ".tmp.*", name)
            elif not same and base["files"].get(name) not in (None, content):
                yield "half a file %s" % name
        wrong = self.database(home)
        if wrong:
            yield "database: " + re.sub(r"\d+", "N", wrong)
        for name in [n for n in os.listdir(self.t) if n.startswith("sanitizer")]:
            text = open(self.path(name)).read()
            what = re.search(r"Sanitizer: ([\w-]+)", text)
            yield "sanitizer: %s in %s" % (what[1] if what else "?", " < ".join(
                re.findall(r"#[1-7] 0x[0-9a-f]+ in (\w+)", text)[:6]))
            os.unlink(self.path(name))

    def baseline(self, command):
        runs = [self.once(command) for _ in range(1)] + [self.once(command, preload=False) for _ in range(2)]
        files = [None] * len(runs)
        base = dict(runs[0])
        base["result"] = Result([parts(r["out"], command in MEASURING) for r in runs], command in MEASURING)
        self.once(command)
        files = self.files(self.path("run"))
        self.once(command)
        again = self.files(self.path("run"))
        base["files"] = {k: v if again.get(k) == v else None for k, v in files.items()}
        if base["status"] > 3:
            sys.exit("%s: status %d: %s" % (command, base["status"], base["err"]))
        for status, text in base["answers"]:
            if status != 200:
                sys.exit("%s: a request is answered with %s, %s: %s" % (command, status, text, base["err"]))
        for r in runs:
            if r["status"] != base["status"]:
                sys.exit("%s: status %d, then %d: %s" % (command, base["status"], r["status"], r["err"]))
        return base

    def numbers(self, calls, key):
        """Which calls fail: all, or a sample that is the same each time."""
        if self.a.all or calls <= self.a.most:
            return range(1, calls + 1)
        rank = lambda n: hashlib.sha256(("%s %d" % (key, n)).encode()).digest()
        return sorted(sorted(range(1, calls + 1), key=rank)[:self.a.most])

    def test(self, command):
        self.start_files = self.files(self.path("start"))
        base = self.baseline(command)
        for place in self.a.callers:
            for role in ("parent", "worker"):
                fault = {"FAULT_FROM": place, "FAULT_IN": role}
                count = self.once(command, dict(fault, FAULT_AT="0"))["calls"]
                for kind in CLASSES:
                    if kind not in self.a.kinds:
                        continue
                    for n in self.numbers(count[kind], "%s %s %s %s" % (command, place, role, kind)):
                        self.inject(command, base, dict(fault, FAULT_CLASS=kind, FAULT_AT=str(n), **self.a.errno))

    def inject(self, command, base, fault):
        run = self.once(command, fault)
        if not run["failed"]:
            return  # the number of calls varies a little with time
        run["library"] = fault["FAULT_FROM"] != "qdyno"
        self.injected[(command, fault["FAULT_CLASS"])] += 1
        stack = " < ".join(run["stack"][:self.a.depth])
        for problem in self.problems(command, base, run):
            key = (problem, command, run["function"], stack)
            self.findings[key] = self.findings.get(key, 0) + 1
            if self.findings[key] > 1:
                continue
            print("FAIL: %s: %s\n  %s < %s\n  %s\n  %s" % (
                command, problem, run["function"], stack, " ".join("%s=%s" % x for x in fault.items()),
                (run["err"].strip().splitlines() or [""])[-1][:300]), flush=True)

    def report(self):
        table = collections.defaultdict(dict)
        for (command, kind), n in self.injected.items():
            table[command][kind] = n
        for command, row in table.items():
            print("%-9s %s" % (command, ", ".join("%s %d" % (k, row[k]) for k in CLASSES if k in row)))
        print("%d faults in %d commands, %d findings" % (sum(self.injected.values()), len(table), len(self.findings)))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("qdyno")
    p.add_argument("faults")
    p.add_argument("--all", action="store_true", help="all calls, not a sample")
    p.add_argument("--only", action="append", choices=COMMANDS, help="this command")
    p.add_argument("--class", dest="kinds", action="append", choices=CLASSES)
    p.add_argument("--from", dest="callers", action="append", help="calls made by this program or library")
    p.add_argument("--quick", action="store_true", help="only the commands that take a few milliseconds, 2 calls of each class")
    p.add_argument("--errno", choices=[errno.errorcode[n] for n in STATUS_OF], help="with this error, not each function's own")
    p.add_argument("--most", type=int, default=4, help="how many calls of a class fail without --all")
    p.add_argument("--depth", type=int, default=4, help="functions of the stack that are printed")
    a = p.parse_args()
    a.kinds = a.kinds or CLASSES
    if a.quick:
        a.only, a.most = [c for c in COMMANDS if c not in MEASURING + ("eval",)], 2
    a.errno = {"FAULT_ERRNO": str(getattr(errno, a.errno))} if a.errno else {}
    a.callers = a.callers or ["qdyno"] + LIBRARIES
    tester = Tester(a)
    try:
        for command in a.only or COMMANDS:
            tester.test(command)
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("stopped before the end")
    finally:
        tester.report()
        shutil.rmtree(tester.t, ignore_errors=True)
    sys.exit(1 if tester.findings or not tester.injected else 0)


main()
