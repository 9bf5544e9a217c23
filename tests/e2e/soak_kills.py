"""Kills at random moments: soak.py --kills N or --hours H.

Starts an A/B, a resumed A/B, a watch, a bench or the dashboard (in a terminal of its own), and ends it 0.05 to 2 s later:
three of four times with SIGKILL, else with SIGTERM, SIGINT, SIGHUP or by closing the terminal. In a quarter of the rounds
the disk of the database is full or gets full meanwhile, in a quarter the wall clock jumps by up to ten years.

After each round no process may be left, the database must be whole, every cell that was stored before the signal must
still be there with all its values, and the next command must find no run in state "running". After every 100 rounds the
last A/B is resumed to its verdict, what is in the cache must be whole, no temporary file may be left, and a new folder
is begun. Faults are printed with the number of the round; the same seed takes the same decisions again.

The disk is a small tmpfs where the user may mount one, else a limit on the size of files.
"""
import json, os, pty, random, resource, shutil, signal, sqlite3, struct, subprocess, sys, tempfile, time

from stored import cells_of, check_experiment, check_file, open_database

DISK = 48 << 20        # bytes; 100 rounds need a few MB
BATCH = 100            # rounds in one folder
END_S = 60             # longest time between a signal and the end of all processes
RUN_S = 900            # longest time of a command with a budget of 60 s, on a machine that is much too busy
AB = ["ab", "default", "q8_0", "-w", "tg8", "--max-blocks", "6", "--control", "2", "--budget", "90s"]
COMMANDS = {
    "ab": AB,
    "resume": ["ab", "--resume", "ID", "--budget", "90s"],
    "watch": ["watch", "--every", "1s", "-w", "tg8", "-r", "2", "--even-if-busy"],
    "bench": ["bench", "-C", "q4_0", "-p", "8", "-n", "8", "-r", "50"],
    "dashboard": ["dashboard", "--no-mouse"],
}
SIGNALS = {"TERM": signal.SIGTERM, "INT": signal.SIGINT, "HUP": signal.SIGHUP, "close": None}


class Folder:
    """A throwaway HOME with a disk of its own for the database."""

    def __init__(self, program, clock):
        self.program = program
        self.path = tempfile.mkdtemp(prefix="qdyno-kills-")
        self.data = os.path.join(self.path, "data")
        for name in ("data", "cache", "config", "tmp"):
            os.mkdir(os.path.join(self.path, name))
        self.mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%d" % DISK, "tmpfs", self.data],
                                      stderr=subprocess.DEVNULL).returncode == 0
        self.db = os.path.join(self.data, "qdyno", "qdyno.db")
        self.filler = os.path.join(self.data, "filler")
        self.clock = os.path.join(self.path, "clock")
        self.known = {}  # stored cells: stored.cells_of
        self.jump(0)
        self.env = dict(os.environ, HOME=self.path, XDG_DATA_HOME=self.data, XDG_CACHE_HOME=self.path + "/cache",
                        XDG_CONFIG_HOME=self.path + "/config", TMPDIR=self.path + "/tmp", TERM="xterm-256color",
                        LC_ALL="C.UTF-8", QDYNO_SOAK=self.path)
        if clock:
            self.env.update(LD_PRELOAD=clock, CLOCK_JUMPS=self.clock)

    def close(self):
        if self.mounted:
            subprocess.run(["umount", "-l", self.data])
        shutil.rmtree(self.path, ignore_errors=True)

    def jump(self, seconds):
        with open(self.clock, "r+b" if os.path.exists(self.clock) else "wb") as f:
            f.write(struct.pack("q", seconds))

    def fill(self, left):
        """Leave so many bytes free."""
        if self.mounted:
            free = os.statvfs(self.data)
            try:
                with open(self.filler, "wb") as f:
                    f.write(b"\0" * max(free.f_bavail * free.f_frsize - left, 0))
            except OSError:
                pass  # it is full already

    def limit_files(self, left):
        """Where no disk can be made: no file may grow much beyond the log of the database. Runs in the child."""
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        sizes = [os.path.getsize(self.db + end) for end in ("", "-wal") if os.path.exists(self.db + end)]
        resource.setrlimit(resource.RLIMIT_FSIZE, (max(sizes + [1 << 16]) + left, resource.RLIM_INFINITY))

    def empty(self):
        if os.path.exists(self.filler):
            os.unlink(self.filler)

    def run(self, *arguments):
        try:
            return subprocess.run([self.program, *arguments], env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, timeout=RUN_S)
        except subprocess.TimeoutExpired as e:
            return subprocess.CompletedProcess(e.cmd, 124, "{}", "it did not end in %d s" % RUN_S)

    def processes(self):
        """The ids of all live processes that were started in this folder."""
        mark, found = ("QDYNO_SOAK=" + self.path).encode(), []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    with open("/proc/%s/environ" % name, "rb") as f:
                        if mark in f.read().split(b"\0"):
                            found.append(int(name))
                except OSError:
                    pass
        return found

    def stored(self):
        """The cells in the database now; {} before there is one."""
        db = open_database(self.db)
        try:
            return cells_of(db) if db else {}
        finally:
            if db:
                db.close()


class Child:
    """The program in a terminal of its own (the dashboard, or one command of four), or with its output in files."""

    def __init__(self, folder, arguments, terminal, left, keys):
        self.pid, self.fd, self.keys, self.folder = 0, -1, keys, folder
        output = os.path.join(folder.path, "output")
        self.pid, self.fd = pty.fork() if terminal else (os.fork(), -1)
        if self.pid == 0:
            for number in (signal.SIGHUP, signal.SIGINT):  # ignored when this script was started by nohup or with &
                signal.signal(number, signal.SIG_DFL)
            if not terminal:
                out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
                os.dup2(out, 1)
                os.dup2(out, 2)
            if left is not None and not folder.mounted:
                folder.limit_files(left)
            os.execve(folder.program, [folder.program, *arguments], folder.env)
        if self.fd >= 0:
            os.set_blocking(self.fd, False)

    def drain(self):
        try:
            while self.fd >= 0 and os.read(self.fd, 65536):
                pass
        except OSError:
            pass

    def press(self):
        if self.keys and self.fd >= 0:
            try:
                os.write(self.fd, self.keys.pop(0).encode())
            except OSError:
                pass

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def wait(self, seconds):
        """The exit status within that time (negative: a signal), else None."""
        until = time.monotonic() + seconds
        while True:
            self.drain()
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() >= until:
                return None
            time.sleep(0.01)


class Kills:
    def __init__(self, program, clock, seed):
        self.program, self.clock, self.seed = program, clock, seed
        self.faults, self.rounds, self.by = [], 0, {}
        self.cells = self.lost = self.signals = self.full = self.jumps = self.ended = 0
        self.folder = None

    def fault(self, text):
        self.faults.append((self.rounds, text))
        print("round %d: FAULT: %s" % (self.rounds, text), flush=True)

    def last_ab(self):
        """The newest A/B that is not done; 0: none."""
        db = open_database(self.folder.db)
        row = db and db.execute("SELECT id FROM run WHERE kind = 'ab' AND state <> 'done' AND spec_json IS NOT NULL"
                                " ORDER BY id DESC LIMIT 1").fetchone()
        if db:
            db.close()
        return row[0] if row else 0

    def start(self, rng, left):
        name = rng.choice(["ab", "resume", "resume", "watch", "bench", "dashboard", "dashboard"])
        run = self.last_ab() if name == "resume" else 0
        if name == "resume" and not run:
            name = "ab"
        arguments = [str(run) if a == "ID" else a for a in COMMANDS[name]]
        if name == "ab":
            arguments += ["--seed", str(rng.randint(1, 1 << 30))]
        keys = ["b", "\r"] + [rng.choice("12345678nps?\x1b\t") for _ in range(20)] if name == "dashboard" else []
        self.by[name] = self.by.get(name, 0) + 1
        return name, Child(self.folder, arguments, name == "dashboard" or rng.random() < 0.25, left, keys)

    def live(self, rng, child, seconds, left):
        """Lets the program work, while keys are pressed, the clock jumps and the disk fills."""
        until, fill_at = time.monotonic() + seconds, time.monotonic() + seconds * rng.random()
        jumping, status = rng.random() < 0.25 and self.clock, None
        while status is None and time.monotonic() < until:
            if left is not None and time.monotonic() >= fill_at:
                self.folder.fill(left)
                fill_at = until
            if jumping and rng.random() < 0.2:
                self.folder.jump(rng.choice([-1, 1]) * rng.choice([1, 3600, 86400 * 365 * 10]))
            child.press()
            status = child.wait(min(0.1, max(until - time.monotonic(), 0)))
        self.jumps += bool(jumping)
        return status

    def end(self, rng, child):
        """Ends the program after a look at what it has stored, and returns its status."""
        os.kill(child.pid, signal.SIGSTOP)
        try:
            before = self.folder.stored()
        except sqlite3.OperationalError:
            before = {}  # nobody can open it while the disk is full; what was known before the round is still compared
        how = "KILL" if rng.random() < 0.75 else rng.choice(list(SIGNALS))
        self.by[how] = self.by.get(how, 0) + 1
        if how == "KILL":
            os.kill(child.pid, signal.SIGKILL)
        elif how == "close":
            child.close()
            os.kill(child.pid, signal.SIGHUP)  # as the shell or tmux does
        else:
            os.kill(child.pid, SIGNALS[how])
        os.kill(child.pid, signal.SIGCONT)
        status = child.wait(END_S)
        if status is None:
            self.fault("did not end within %d s after %s: %s" % (END_S, how, open("/proc/%d/cmdline" % child.pid).read().split("\0")))
            os.kill(child.pid, signal.SIGKILL)
            status = child.wait(END_S)
        return how, before, status

    def no_process_left(self, what):
        until = time.monotonic() + END_S
        left = self.folder.processes()
        while left and time.monotonic() < until:
            time.sleep(0.02)
            left = self.folder.processes()
        if left:
            self.fault("%s: processes are left: %s" % (what, left))
            for pid in left:
                os.kill(pid, signal.SIGKILL)

    def check(self, what, before):
        """The database after a round, first as it is, then as the next command leaves it."""
        folder = self.folder
        folder.known.update(before)
        now = folder.stored()
        lost = [cell for cell, row in folder.known.items() if now.get(cell) != row]
        if lost:
            self.lost += len(lost)
            self.fault("%s: %d cells were lost or changed, e.g. %d" % (what, len(lost), lost[0]))
        folder.known = now
        if not os.path.exists(folder.db):
            return
        listed = folder.run("history", "-o", "json", "--limit", "1000")
        if listed.returncode:
            self.fault("%s: history ends with %d: %s" % (what, listed.returncode, listed.stderr.strip()[-300:]))
        elif [r for r in json.loads(listed.stdout)["rows"] if r["state"] == "running"]:
            self.fault("%s: a run stays running" % what)
        db = open_database(folder.db)
        try:
            check_file(db)
            last = db.execute("SELECT id FROM run WHERE kind = 'ab' ORDER BY id DESC LIMIT 1").fetchone()
            if last:
                check_experiment(db, last[0])
        except AssertionError as e:
            self.fault("%s: %s" % (what, e))
        finally:
            db.close()

    def round(self):
        self.rounds += 1
        rng = random.Random("%d/%d" % (self.seed, self.rounds))
        left = rng.choice([0, 20000, 100000, 300000]) if rng.random() < 0.25 else None
        self.full += left is not None
        if left is not None and rng.random() < 0.3:
            self.folder.fill(left)
        name, child = self.start(rng, left)
        seconds = rng.uniform(0.05, 2)
        status = self.live(rng, child, seconds, left)
        if status is None:
            how, before, status = self.end(rng, child)
            self.signals += 1
        else:
            how, before = "its own end", {}
            self.ended += 1
        child.close()
        what = "%s, %.2f s, %s%s" % (name, seconds, how, "" if left is None else ", %d bytes free" % left)
        allowed = [0, 1, 2, 3, 6, 130] + ([5] if how == "close" else []) + [-s for s in (9, 15, 1, 2) if how != "its own end"]
        if status not in allowed:
            try:
                with open(self.folder.path + "/output", errors="replace") as f:
                    said = f.read()[-300:]
            except OSError:
                said = ""
            self.fault("%s: status %s: %s" % (what, status, said))
        elif status == 6 and left is None:
            self.fault("%s: status 6 with room on the disk" % what)
        self.no_process_left(what)
        self.folder.empty()
        self.folder.jump(0)
        self.check(what, before)

    def batch_end(self):
        """Everything can be gone on with, and nothing is left behind."""
        folder, run = self.folder, self.last_ab()
        if run:
            done = folder.run("ab", "--resume", str(run), "--budget", "60s", "-o", "json")
            if done.returncode > 3 or json.loads(done.stdout)["state"] != "done":
                self.fault("run %d cannot be resumed: status %d: %s" % (run, done.returncode, done.stderr[-300:]))
        made = folder.run("bench", "-C", "q4_1", "-p", "0", "-n", "1", "-r", "1")
        if made.returncode:
            self.fault("bench after the kills ends with %d: %s" % (made.returncode, made.stderr[-300:]))
        for path, _, names in os.walk(folder.path):
            for name in names:
                file = os.path.join(path, name)
                if ".partial" in name or ".tmp" in name or name.endswith("-journal") or path.startswith(folder.path + "/tmp"):
                    self.fault("left behind: %s" % file[len(folder.path):])
                elif name.endswith(".gguf") and folder.run("info", "-m", file).returncode:
                    self.fault("half-written: %s" % file[len(folder.path):])
        self.check("after %d rounds" % self.rounds, {})
        self.cells += len(folder.known)
        folder.close()
        self.folder = None

    def report(self, began):
        print("%d rounds in %.0f s, seed %d: %d signals (%s), %d ended before; full disk in %d, clock jumps in %d; "
              "%d cells stored, %d lost; %d faults" %
              (self.rounds, time.monotonic() - began, self.seed, self.signals,
               ", ".join("%s %d" % item for item in sorted(self.by.items())), self.ended, self.full, self.jumps, self.cells,
               self.lost, len(self.faults)), flush=True)


def soak_kills(program, clock, kills, hours, seed):
    """Until so many signals were sent and so much time has passed. Returns the number of faults."""
    k, began = Kills(program, clock, seed), time.monotonic()
    if not clock:
        print("no library clock_jumps beside the program: the clock does not jump")
    try:
        while k.signals < kills or time.monotonic() - began < hours * 3600:
            k.folder = k.folder or Folder(program, clock)
            k.round()
            if k.rounds % BATCH == 0:
                k.batch_end()
                k.report(began)
        if k.folder:
            k.batch_end()
    finally:
        if k.folder:
            k.folder.close()
    k.report(began)
    return len(k.faults)
