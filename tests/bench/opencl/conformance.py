#!/usr/bin/env python3
"""Golden logits on every OpenCL implementation that runs on a processor, because what one compiler forgives another does not.

Each implementation runs the models of tests/data and ../shared/data whose logits another engine computed, 16 rows and one row
at a time, and the largest error is held against each model's tolerance. The seconds until the first logits are told twice: with
nothing compiled yet, and with the kernels in the cache; the CPU needs none, so its seconds are what the rest of the program
takes. The implementations:

  pocl      Debian's pocl-opencl-icd
  intel     Intel's CPU runtime: the wheels intel-opencl-rt and intel-cmplr-lib-rt, in a virtual environment below --folder
            (800 MB; --install makes it)
  oclgrind  Debian's oclgrind, installed or unpacked into --oclgrind: interprets the kernels, checks every access against the
            buffers and looks for data races. It is a thousand times slower, so it runs two small models and few tokens.

Devices that lack something are simulated between the program and PoCL (tests/e2e/opencl_faults.c): work groups of at most 1,
32, 64 or 256 items, no local memory, and no fp16, fp64 or subgroups. Such a device must give right logits or a clear refusal.

An implementation that is missing is skipped, and said so. Exit status: 0 all right, 1 a model was wrong or failed, or oclgrind
found an error, 3 no implementation is here, 4 bad usage.
"""

import argparse
import array
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

EXIT_WRONG, EXIT_NOTHING, EXIT_USAGE = 1, 3, 4
SETS = ("arch-golden", "arch-golden-2", "arch-golden-3")
EXACT = "precision=highest,ctk=f32,ctv=f32,threads=1"
BATCHES = (16, 1)
INTERPRETED, INTERPRETED_IDS = ("llama-gqa", "llama-gqa-256-Q4_0"), 10  # more than 8 rows: other kernels
# what a device may lack, and what the simulation is told
LACKING = [(f"work groups of {n}", {"FAULT_GROUP_ITEMS": str(n)}) for n in (1, 32, 64, 256)] + [
    ("no local memory", {"FAULT_LOCAL_BYTES": "0"}), ("no fp16", {"FAULT_WITHOUT": "cl_khr_fp16"}),
    ("no fp64", {"FAULT_WITHOUT": "cl_khr_fp64"}), ("no subgroups", {"FAULT_WITHOUT": "cl_khr_subgroups"})]
# what oclgrind reports of a kernel, without the address; and a kernel that does two of these things
FOUND = re.compile(r"^(Invalid \w+ of size \d+|[\w-]+ data race|Uninitialized [\w ]+|Unaligned [\w ]+|Work-group divergence)")
PLANTED = """kernel void planted(global int *x)
{
    x[0] = (int)get_global_id(0);
    if (get_global_id(0) == 1) x[1000] = 1;
}
"""
PLANTED_RUN = "planted.cl\nplanted\n4 1 1\n4 1 1\n<size=64 fill=0>\n"


def note(text):
    print(f"opencl-conformance: {text}", file=sys.stderr, flush=True)


# ---------------------------------------------------------------- models

def data_file(options, folder, name):
    """A file of a set: the small ones are in the repository, the others beside it."""
    for root in (options.data, options.repository):
        path = os.path.join(root, folder, name)
        if os.path.exists(path):
            return path
    return None


def models(options):
    """Of the first set all, of the others the first of each architecture; with --every all."""
    seen, found, missing = set(), [], 0
    for folder in SETS:
        manifest = data_file(options, folder, "manifest.json")
        if not manifest:
            continue
        with open(manifest, encoding="utf-8") as file:
            rows = json.load(file)
        for row in rows:
            if options.only and options.only not in row["name"]:
                continue
            if folder != SETS[0] and row["arch"] in seen and not options.every:
                continue
            seen.add(row["arch"])
            files = [data_file(options, folder, row[key]) for key in ("model", "ids")]
            files.append(data_file(options, folder, row.get("exact", row["logits"])))
            if None in files:
                missing += 1
                continue
            with open(files[1], encoding="utf-8") as file:
                ids = json.load(file)
            found.append({"name": row["name"], "model": files[0], "ids": ids, "want": files[2], "ctx": row["n_ctx"],
                          "tolerance": row["tolerance_max_abs"]})
    if missing:
        note(f"SKIPPED: {missing} models whose files are not here")
    return found


def floats(path):
    values = array.array("f")
    with open(path, "rb") as file:
        values.frombytes(file.read())
    return values


# ---------------------------------------------------------------- one run

def reported(log):
    """What oclgrind reported: pairs of an error and a kernel, each once."""
    found, kind = set(), None
    if not log or not os.path.exists(log):
        return found
    with open(log, encoding="utf-8", errors="replace") as file:
        for line in file:
            error = FOUND.match(line)
            if error:
                kind = error.group(1)
            elif kind and line.strip().startswith("Kernel:"):
                found.add((kind, line.split(":")[1].strip()))
                kind = None
    return found


class Place:
    """Where models run: a device and its environment. cache: what the program and the drivers compiled."""

    def __init__(self, name, environment, cache, device="opencl:0"):
        self.name, self.device = name, device
        self.log, self.found = environment.get("OCLGRIND_LOG"), set()
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(("OCL", "POCL", "QDYNO"))}
        self.environment.update(XDG_CACHE_HOME=cache, POCL_CACHE_DIR=os.path.join(cache, "pocl"), HOME=cache,
                                XDG_DATA_HOME=os.path.join(cache, "data"), **environment)
        os.makedirs(os.path.join(cache, "pocl"), exist_ok=True)


def logits(options, place, model, batch, ids):
    """Largest error, and what went wrong ("": nothing)."""
    out = os.path.join(options.scratch, "logits.f32")
    command = [options.qdyno, "logits", "-m", model["model"], "--ids", ",".join(map(str, ids)), "--out", out, "-C",
               f"{EXACT},ctx={model['ctx']},batch={batch},device={place.device}"]
    for path in (out, place.log or out):
        if os.path.exists(path):
            os.unlink(path)
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=place.environment, check=False,
                              stdin=subprocess.DEVNULL, timeout=options.timeout, errors="replace")
    except subprocess.TimeoutExpired:
        return None, f"no answer in {options.timeout} s"
    finally:
        place.found |= reported(place.log)
    if done.returncode:
        return None, f"status {done.returncode}: {done.stderr.strip()[-200:]}"
    got, want = floats(out), floats(model["want"])
    if len(got) > len(want) or len(got) * len(model["ids"]) != len(want) * len(ids):
        return None, f"{len(got)} logits, expected {len(ids)} of {len(model['ids'])} rows of {len(want)}"
    error = max(abs(a - b) if a == a else float("inf") for a, b in zip(got, want))
    return error, "" if error <= model["tolerance"] else f"off by {error:.3g}, tolerance {model['tolerance']:.3g}"


def compile_seconds(options, place, model):
    """Until the first logits, with nothing compiled, and with everything in the caches."""
    seconds = []
    for _ in range(2):
        began = time.monotonic()
        logits(options, place, model, BATCHES[0], model["ids"])
        seconds.append(time.monotonic() - began)
    return seconds


def conform(options, place, chosen, count=None):
    """Runs all models; returns how many were right, the names of the others, and the worst error over its tolerance."""
    right, wrong, worst = 0, [], 0.0
    for model in chosen:
        ids, said = model["ids"][:count], ""
        for batch in BATCHES:
            error, said = logits(options, place, model, batch, ids)
            if error is not None:
                worst = max(worst, error / model["tolerance"])
            if said:
                note(f"{place.name}: {model['name']}, {batch} at a time: {said}")
                break
        right += not said
        if said:
            wrong.append(model["name"])
    return right, wrong, worst


# ---------------------------------------------------------------- implementations

def icd(options, name, library):
    """A folder for OCL_ICD_VENDORS with this library alone."""
    folder = os.path.join(options.scratch, "icd", name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name + ".icd"), "w", encoding="utf-8") as file:
        file.write(library + "\n")
    return folder


def find_pocl(_options):
    path = "/etc/OpenCL/vendors/pocl.icd"
    if not os.path.exists(path):
        return None, "Debian's pocl-opencl-icd is not installed"
    with open(path, encoding="utf-8") as file:
        return file.read().strip(), ""


def find_intel(options):
    folder = os.path.join(options.folder, "intel")
    library = os.path.join(folder, "lib", "libintelocl.so")
    if options.install and not os.path.exists(library):
        note("installing intel-opencl-rt and intel-cmplr-lib-rt")
        subprocess.run([sys.executable, "-m", "venv", folder], check=False)
        subprocess.run([os.path.join(folder, "bin", "pip"), "-q", "install", "intel-opencl-rt", "intel-cmplr-lib-rt"], check=False)
    return (library, "") if os.path.exists(library) else (None, "its wheels are not here: --install gets them")


def find_oclgrind(options):
    for root in (options.oclgrind, "/usr"):
        library = os.path.join(root or "", "lib", "oclgrind", "liboclgrind-rt-icd.so")
        if root and os.path.exists(library):
            return library, ""
    return None, "Debian's oclgrind is neither installed nor in --oclgrind"


def environment_of(options, name, library):
    """What the loader and the implementation need."""
    environment = {"OCL_ICD_VENDORS": icd(options, name, library)}
    if name == "intel":
        environment["LD_LIBRARY_PATH"] = os.path.dirname(library)
    if name == "oclgrind":
        root = os.path.dirname(os.path.dirname(library))
        triplet = os.path.join(root, "x86_64-linux-gnu")
        # without optimization, because the interpreter does not know all that the optimizer writes
        environment.update(LD_LIBRARY_PATH=triplet, OCLGRIND_DATA_RACES="1", OCLGRIND_BUILD_OPTIONS="-cl-opt-disable",
                           OCLGRIND_LOG=os.path.join(options.scratch, "oclgrind.log"))
        headers = os.path.join(triplet, "oclgrind")
        versions = sorted(os.listdir(headers)) if os.path.isdir(headers) else []
        if versions:
            environment["OCLGRIND_PCH_DIR"] = os.path.join(headers, versions[-1])
    return environment


IMPLEMENTATIONS = {"pocl": find_pocl, "intel": find_intel, "oclgrind": find_oclgrind}


def device_name(options, place):
    done = subprocess.run([options.qdyno, "detect", "-o", "json", "--quiet"], capture_output=True, text=True, check=False,
                          env=place.environment, stdin=subprocess.DEVNULL, timeout=options.timeout)
    try:
        devices = json.loads(done.stdout)["opencl"]
    except (ValueError, KeyError):
        devices = []
    return f"{devices[0]['model']} ({devices[0]['driver']})" if devices else None


def finds_planted(options, place, root):
    """Whether oclgrind reports what a kernel does wrong on purpose: then no report means that there is nothing."""
    with open(os.path.join(options.scratch, "planted.cl"), "w", encoding="utf-8") as file:
        file.write(PLANTED)
    with open(os.path.join(options.scratch, "planted.sim"), "w", encoding="utf-8") as file:
        file.write(PLANTED_RUN)
    subprocess.run([os.path.join(root, "bin", "oclgrind-kernel"), "planted.sim"], cwd=options.scratch, env=place.environment,
                   check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=options.timeout)
    found = {text.split(" ")[0] for text, kernel in reported(place.log) if kernel == "planted"}
    return found == {"Invalid", "Write-write"}


def run_implementation(options, name, chosen):
    """Prints one row. None: it is not here; else whether all was right."""
    library, why = IMPLEMENTATIONS[name](options)
    if not library:
        print(f"{name:9} SKIPPED: {why}", flush=True)
        return None
    cache = os.path.join(options.scratch, "cache-" + name)
    place = Place(name, environment_of(options, name, library), cache)
    device = device_name(options, place)
    if not device:
        print(f"{name:9} SKIPPED: {library} shows no device", flush=True)
        return None
    interpreted = name == "oclgrind"
    chosen = [m for m in chosen if m["name"] in INTERPRETED] if interpreted else chosen
    first = next((m for m in chosen if m["name"] == INTERPRETED[-1]), chosen[0])
    shutil.rmtree(cache)
    os.makedirs(os.path.join(cache, "pocl"))
    if interpreted and not finds_planted(options, place, os.path.dirname(os.path.dirname(os.path.dirname(library)))):
        print(f"{name:9} {device}: does not find the errors of a kernel that was made to have some", flush=True)
        return False
    new, again = (None, None) if interpreted else compile_seconds(options, place, first)
    began = time.monotonic()
    right, wrong, worst = conform(options, place, chosen, INTERPRETED_IDS if interpreted else None)
    for error, kernel in sorted(place.found):
        note(f"{name}: kernel {kernel}: {error}")
    compiled = "interpreted" if interpreted else f"{new:.1f} s with nothing compiled, {again:.1f} s from the cache"
    print(f"{name:9} {device}: {right} models right, {len(wrong)} wrong or failed; largest error {100 * worst:.1f} % of its "
          f"tolerance; first logits: {compiled}; all took {time.monotonic() - began:.0f} s"
          + (f"; {len(place.found)} errors and data races found" if interpreted else ""), flush=True)
    return not wrong and not place.found


# ---------------------------------------------------------------- devices that lack something

REFUSED = re.compile(r"^status 7: .*opencl:0 .*; the kernels need ", re.S)


def run_lacking(options, chosen):
    """Each device must compute the right logits, or refuse with a message that names it."""
    library, _ = find_pocl(options)
    if not library or not options.faults or not os.path.exists(options.faults):
        print("simulated devices SKIPPED: they need PoCL and the library --faults", flush=True)
        return None
    model = next((m for m in chosen if m["name"] == INTERPRETED[-1]), chosen[0])
    fine = True
    for name, lack in LACKING:
        environment = environment_of(options, "pocl", library)
        place = Place(name, dict(environment, LD_PRELOAD=options.faults, **lack), os.path.join(options.scratch, "cache-pocl"))
        outcome = []
        for batch in BATCHES:
            error, said = logits(options, place, model, batch, model["ids"])
            refused = error is None and REFUSED.search(said)
            fine = fine and (not said or bool(refused))
            outcome.append("right" if not said else ("refused: " if refused else "WRONG: ") + said)
        text = outcome[0] if len(set(outcome)) == 1 else "; ".join(f"{b} rows {o}" for b, o in zip(BATCHES, outcome))
        print(f"{name:20} {text}", flush=True)
    return fine


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    parser.add_argument("--qdyno", required=True)
    parser.add_argument("--folder", required=True, help="where Intel's runtime is installed")
    parser.add_argument("--data", default=os.path.join(root, "..", "shared", "data"))
    parser.add_argument("--faults", help="the library that tests/e2e/opencl_faults.c makes")
    parser.add_argument("--oclgrind", help="folder that Debian's oclgrind was unpacked into, as its /usr")
    parser.add_argument("--install", action="store_true", help="install Intel's runtime below --folder")
    parser.add_argument("--implementation", action="append", choices=sorted(IMPLEMENTATIONS), help="only this one; may be repeated")
    parser.add_argument("--every", action="store_true", help="all models, not one for each architecture")
    parser.add_argument("--only", help="models whose name contains this")
    parser.add_argument("--timeout", type=int, default=900, help="seconds of one run")
    parser.error = lambda text: parser.exit(EXIT_USAGE, f"opencl-conformance: {text}\n")
    options = parser.parse_args()
    options.repository = os.path.join(root, "tests", "data")
    with tempfile.TemporaryDirectory(prefix="qdyno-opencl-") as options.scratch:
        chosen = models(options)
        if not chosen:
            parser.error(f"no golden models in {options.data} and {options.repository}")
        note(f"{len(chosen)} models, {len(BATCHES)} batch sizes")
        host = Place("cpu", {}, os.path.join(options.scratch, "cache-cpu"), device="cpu")
        began = time.monotonic()
        _, said = logits(options, host, chosen[0], BATCHES[0], chosen[0]["ids"])
        print(f"cpu       first logits: {time.monotonic() - began:.1f} s{'; ' + said if said else ''}", flush=True)
        results = [run_implementation(options, name, chosen) for name in options.implementation or IMPLEMENTATIONS]
        if not options.implementation or "pocl" in options.implementation:
            results.append(run_lacking(options, chosen))
    if all(r is None for r in results):
        sys.exit(EXIT_NOTHING)
    sys.exit(EXIT_WRONG if False in results else 0)


if __name__ == "__main__":
    main()
