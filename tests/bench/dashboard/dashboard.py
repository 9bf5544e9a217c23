#!/usr/bin/env python3
"""Measures the dashboard: time to the first frame, CPU time while idle and during an A/B, and memory.

    dashboard.py --qdyno FILE [--starts 20] [--seconds 20] [--size 120x36] [--workload tg900] [-o json]

Runs in a pseudo-terminal with a temporary HOME and the bundled model. The first frame counts as complete when its last
line, the footer with the keys, has been written; time is measured from the fork. CPU time is told apart by thread, from
/proc/PID/task: the first one draws, "sampler" reads the sensors, "jobs" work in the background; the process of the
A/B and its workers are counted together, as "arms". Wanted: a first frame within 50 ms, at most 0.5 % of a core while nothing
happens, and 1 % for drawing and sampling during cells. Nothing is asserted, because times depend on the machine.
"""
import argparse, fcntl, json, os, pty, select, shutil, signal, statistics, struct, tempfile, termios, time

TICK = os.sysconf("SC_CLK_TCK")


def start(program, home, w, h, arguments=()):
    env = dict(os.environ, HOME=home, XDG_DATA_HOME=home + "/data", XDG_CONFIG_HOME=home + "/config",
               XDG_CACHE_HOME=home + "/cache", TERM="xterm-256color", LC_ALL="C.UTF-8")
    pid, fd = pty.fork()
    if pid == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", h, w, 0, 0))
        os.execve(program, [program, *arguments], env)
    return pid, fd


def read_until(fd, want, seconds, seen=b""):
    until = time.monotonic() + seconds
    while want not in seen:
        ready, _, _ = select.select([fd], [], [], max(until - time.monotonic(), 0))
        if not ready:
            raise SystemExit("the dashboard never showed %r" % want.decode())
        seen += os.read(fd, 65536)
    return seen


def drain(fd, seconds):
    """Read for `seconds`; return the number of bytes read."""
    n, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        ready, _, _ = select.select([fd], [], [], max(until - time.monotonic(), 0))
        if ready:
            n += len(os.read(fd, 65536))
    return n


def process_seconds(path):
    with open(path + "/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def thread_seconds(path):
    """In nanoseconds where the kernel counts them, else in its ticks of 10 ms."""
    try:
        with open(path + "/schedstat") as f:
            return int(f.read().split()[0]) / 1e9
    except OSError:
        return process_seconds(path)


def cpu_by_part(pid):
    """CPU seconds of each part of the dashboard so far."""
    parts = {"drawing": 0.0, "arms": 0.0}
    for tid in os.listdir("/proc/%d/task" % pid):
        path = "/proc/%d/task/%s" % (pid, tid)
        try:
            with open(path + "/comm") as f:
                name = "drawing" if int(tid) == pid else f.read().strip()
            parts[name] = parts.get(name, 0.0) + thread_seconds(path)
        except OSError:
            pass  # it has ended
    # Arms that have ended are in the times of the parent's children; those that run have processes of their own.
    with open("/proc/%d/stat" % pid) as f:
        fields = f.read().rsplit(")", 1)[1].split()
    parts["arms"] += (int(fields[13]) + int(fields[14])) / TICK
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit():
                with open("/proc/%s/stat" % entry) as f:
                    if int(f.read().rsplit(")", 1)[1].split()[1]) == pid:
                        parts["arms"] += process_seconds("/proc/" + entry)
        except OSError:
            pass
    return parts


def resident(pid):
    with open("/proc/%d/status" % pid) as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS"))


def end(pid, fd):
    os.kill(pid, signal.SIGTERM)
    try:
        while os.read(fd, 65536):
            pass
    except OSError:
        pass
    os.waitpid(pid, 0)
    os.close(fd)


def first_frames(program, w, h, starts, warm):
    """Milliseconds from the fork to the whole first frame; in a fresh HOME each time unless `warm`."""
    out, home = [], tempfile.mkdtemp(prefix="qdyno-bench-")
    for _ in range(starts):
        if not warm:
            shutil.rmtree(home)
            os.mkdir(home)
        began = time.monotonic()
        pid, fd = start(program, home, w, h)
        read_until(fd, b"quit", 20)
        out.append(1e3 * (time.monotonic() - began))
        drain(fd, 0.3)
        end(pid, fd)
    shutil.rmtree(home)
    return out


def phase(pid, fd, seconds):
    before, began = cpu_by_part(pid), time.monotonic()
    drawn = drain(fd, seconds)
    wall, after = time.monotonic() - began, cpu_by_part(pid)
    parts = {name: max(v - before.get(name, 0.0), 0.0) / wall for name, v in after.items()}
    return {"cpu_share_of_a_core": sum(v for name, v in parts.items() if name != "arms"), "parts": parts,
            "bytes_drawn_s": drawn / wall, "resident_bytes": resident(pid)}


def costs(program, w, h, seconds, workload):
    home = tempfile.mkdtemp(prefix="qdyno-bench-")
    pid, fd = start(program, home, w, h, ["dashboard", "default", "default", "-w", workload])
    read_until(fd, b"quit", 20)
    drain(fd, 3)
    found = {"idle": phase(pid, fd, seconds)}
    os.write(fd, b"b")
    read_until(fd, b"arm B", 10)
    os.write(fd, b"\r")
    drain(fd, 4)
    found["ab"] = phase(pid, fd, seconds)
    end(pid, fd)
    shutil.rmtree(home)
    return found


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--qdyno", required=True)
    p.add_argument("--starts", type=int, default=20)
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--size", default="120x36")
    p.add_argument("--workload", default="tg900", help="of the A/B: the longer its cells, the fewer beginnings and ends of cells")
    p.add_argument("-o", choices=["md", "json"], default="md")
    a = p.parse_args()
    w, h = (int(n) for n in a.size.split("x"))
    program = os.path.abspath(a.qdyno)
    frames = {name: first_frames(program, w, h, a.starts, warm) for name, warm in (("fresh", False), ("again", True))}
    found = {"schema": "qdyno.bench.dashboard/1", "size": a.size, "load_average": os.getloadavg()[0],
             "first_frame_ms": {k: {"median": statistics.median(v), "least": min(v), "most": max(v), "n": len(v)} for k, v in frames.items()},
             "workload": a.workload, **costs(program, w, h, a.seconds, a.workload)}
    if a.o == "json":
        print(json.dumps(found, indent=1))
        return
    print("dashboard at %s, load average %.1f\n\n| | median | least | most |\n|---|---:|---:|---:|" % (a.size, found["load_average"]))
    for name, text in (("fresh", "first frame, nothing stored yet"), ("again", "first frame, again")):
        f = found["first_frame_ms"][name]
        print("| %s, %d starts | %.0f ms | %.0f ms | %.0f ms |" % (text, f["n"], f["median"], f["least"], f["most"]))
    names = ["drawing", "sampler", "jobs", "arms"]
    print("\n| share of a core | %s | drawn | resident |\n|---|%s---:|---:|" % (" | ".join(names), "---:|" * len(names)))
    for name, text in (("idle", "nothing happens"), ("ab", "an A/B of %s runs" % a.workload)):
        c = found[name]
        shares = " | ".join("%.2f %%" % (100 * c["parts"].get(n, 0.0)) for n in names)
        print("| %s | %s | %.1f KB/s | %.1f MB |" % (text, shares, c["bytes_drawn_s"] / 1e3, c["resident_bytes"] / 1e6))


main()
