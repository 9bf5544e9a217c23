#!/usr/bin/env python3
"""Random keys and resizes into the dashboard, in a terminal of its own, for as long as is asked.

    soak.py QDYNO [--seconds 20] [--seed 1]
    soak.py QDYNO --kills 1000 | --hours 8 [--seed 1]     kills at random moments instead: soak_kills.py

The program works in a throwaway HOME. Proves that it stays alive and goes on drawing, that it ends by SIGTERM with
status 0, and that nothing a sanitizer finds is written (build with -DSANITIZE=address,undefined for that: then leaks
count, too). The last keys are printed when something is wrong; the same seed sends the same ones again.
"""
import argparse, fcntl, os, pty, random, select, shutil, signal, struct, sys, tempfile, termios, time

from soak_kills import soak_kills

KEYS = ([chr(c) for c in range(ord("!"), ord("~") + 1) if chr(c) not in "!q"]
        + ["\x1b", "\r", "\t", "\x1b[Z", " ", "\x7f", "\x15", "\x17", "\x01", "\x05", "\x0b", "\x0c", "\x19", "\x1a", "é", "日"]
        + ["\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D", "\x1b[5~", "\x1b[6~", "\x1b[H", "\x1b[F", "\x1b[3~", "\x1bOP"]
        + list("1234567890") * 2 + ["\x1b"] * 6 + ["\r"] * 3)
WORDS = ["default", "f16", "threads=1", "kv=f16", "tg4", "pp8", "Tim had two coins.", ":next th\r", ":help\r", "/!f16\r"]


def winsize(fd, w, h):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", h, w, 0, 0))


def drain(fd, seconds):
    """What the terminal was sent meanwhile; None when it is gone."""
    seen, until = 0, time.monotonic() + seconds
    while True:
        left = until - time.monotonic()
        ready, _, _ = select.select([fd], [], [], max(left, 0))
        if not ready:
            return seen
        try:
            data = os.read(fd, 65536)
        except OSError:
            return None
        if not data:
            return None
        seen += len(data)
        if left <= 0:
            return seen


def gesture(rng):
    """Bytes of something a hand might do."""
    kind = rng.random()
    if kind < 0.001:
        return "q"  # the program is started again then
    if kind < 0.06:
        return rng.choice(WORDS)
    if kind < 0.10:  # a click, the wheel
        return "\x1b[<%d;%d;%dM" % (rng.choice([0, 64, 65]), rng.randint(1, 260), rng.randint(1, 90))
    return rng.choice(KEYS)


def resident(pid):
    try:
        with open("/proc/%d/statm" % pid) as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("qdyno")
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--kills", type=int, default=0)
    p.add_argument("--hours", type=float, default=0)
    p.add_argument("--clock", help="the library clock_jumps; default: as built beside the program")
    a = p.parse_args()
    program = os.path.abspath(a.qdyno)
    if a.kills or a.hours:
        clock = a.clock or os.path.join(os.path.dirname(program), "tests/e2e/libclock_jumps.so")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # its disks are unmounted then, too
        sys.exit(soak_kills(program, os.path.exists(clock) and os.path.abspath(clock), a.kills, a.hours, a.seed) > 0)
    rng = random.Random(a.seed)
    home = tempfile.mkdtemp(prefix="qdyno-soak-")
    report = os.path.join(home, "sanitizer")
    env = dict(os.environ, HOME=home, XDG_DATA_HOME=home, XDG_CONFIG_HOME=home, XDG_CACHE_HOME=home, TERM="xterm-256color",
               LC_ALL="C.UTF-8", ASAN_OPTIONS="log_path=%s:exitcode=99" % report,
               UBSAN_OPTIONS="log_path=%s:print_stacktrace=1:halt_on_error=1:exitcode=99" % report)
    env.pop("NO_COLOR", None)
    # what is quantized is written beside the model: that must be a copy
    for share in (os.path.join(os.path.dirname(program), "share"), os.path.join(os.path.dirname(os.path.dirname(program)), "share")):
        if os.path.isdir(share):
            shutil.copytree(share, os.path.join(home, "share"))
            env["QDYNO_SHARE"] = os.path.join(home, "share")
            break
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(home)
        # port 9 takes nothing: a push waits in the spool
        os.execve(program, [program, "--url", "http://127.0.0.1:9"], env)
    winsize(fd, 100, 30)
    began, sent, resizes, painted, last, largest, starts, may_quit = time.monotonic(), 0, 0, 0, [], 0, 1, False
    wrong = None
    while not wrong and time.monotonic() - began < a.seconds:
        if rng.random() < 0.04:
            w, h = (rng.randint(1, 250), rng.randint(1, 80)) if rng.random() < 0.7 else (rng.randint(80, 200), rng.randint(24, 60))
            winsize(fd, w, h)
            resizes += 1
        elif rng.random() < 0.005:
            os.kill(pid, signal.SIGCONT)
        else:
            keys = gesture(rng)
            last = (last + [keys])[-60:]
            may_quit = may_quit or "q" in keys
            try:
                os.write(fd, keys.encode())
            except OSError:
                wrong = "the terminal is gone"
            sent += 1
        got = drain(fd, rng.choice([0, 0, 0.002, 0.01, 0.05, 0.2]))
        painted += got or 0
        largest = max(largest, resident(pid))
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended and os.waitstatus_to_exitcode(status) == 0 and may_quit:
            pid, fd2 = pty.fork()  # a q was among them: begin again
            if pid == 0:
                os.chdir(home)
                os.execve(program, [program, "--url", "http://127.0.0.1:9"], env)
            os.close(fd)
            fd, may_quit, starts = fd2, False, starts + 1
            winsize(fd, 100, 30)
        elif ended:
            wrong = "ended by itself with %d" % os.waitstatus_to_exitcode(status)
            pid = 0
        elif got is None:
            drain(fd, 0.2)
    if not wrong:
        os.kill(pid, signal.SIGTERM)
        for _ in range(600):
            if drain(fd, 0.1) is None:
                time.sleep(0.1)  # the terminal is gone already
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                wrong = None if code == 0 else "SIGTERM: ended with %d" % code
                pid = 0
                break
        else:
            wrong = "SIGTERM: did not end within a minute"
    if pid:
        os.kill(pid, signal.SIGKILL)
    found = [os.path.join(home, name) for name in os.listdir(home) if name.startswith("sanitizer")]
    for name in found:
        sys.stdout.write(open(name, errors="replace").read())
    if not painted and not wrong:
        wrong = "nothing was ever drawn"
    print("%d keys, %d resizes, %d starts, %.1f MB drawn, %.0f MB resident at most, %.0f s, seed %d" %
          (sent, resizes, starts, painted / 1e6, largest / 1e6, time.monotonic() - began, a.seed))
    if wrong or found:
        print("FAIL: %s\nthe last keys: %r" % (wrong or "a sanitizer spoke", last))
        sys.exit(1)
    shutil.rmtree(home, ignore_errors=True)
    print("passed")


main()
