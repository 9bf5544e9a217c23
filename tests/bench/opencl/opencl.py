#!/usr/bin/env python3
"""How near models on an OpenCL device come to what the device can do.

The device's ceilings are measured (`qdyno detect --probe`), models of the 1b and 7b shapes with random weights are made in
4-bit and 8-bit formats (or given), and each reads a prompt (pp512) and generates (tg64) on the device and, beside it, on the
processor. Decoding is told as bytes of the model read a second (the plan's bytes a token times tokens a second) and as a
share of the measured copy and read bandwidth; reading a prompt as operations of the layers' matrix products (2 a weight and
token) and as a share of the measured f32 and fp16 multiply-adds. Utilization and power are those of the GPU that the model
ran on, where a sensor of its PCI address exists. Before all that, the shapes of products that suit the device are measured
(`qdyno detect --shapes`, minutes; not with --small or --untuned).

Wanted: decode at 60 % of the copy bandwidth or more in every row. That is judged on a GPU only: PoCL on a processor shows
that the script works. `--small` takes the bundled model and short workloads.

Exit status: 0 reached, 1 missed, 3 not judged (no GPU, --small, or nothing measured), 4 bad usage, 7 no such device,
70 a program failed.
"""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile

EXIT_MISSED, EXIT_NOT_JUDGED, EXIT_USAGE, EXIT_NO_DEVICE, EXIT_FAILED = 1, 3, 4, 7, 70
WANTED_DECODE = 0.60
SENSORS = {"busy": "gpu_busy_ratio", "power": "gpu_power_watts", "memory": "gpu_mem_used_bytes"}
# name, width, how a number is written; a value that is not known is n/a
COLUMNS = (("model", 20, "{}"), ("where", 9, "{}"), ("decode tok/s", 13, "{:.1f}"), ("GB/s", 8, "{:.1f}"),
           ("of copy %", 10, "{:.1f}"), ("of read %", 10, "{:.1f}"), ("prefill tok/s", 14, "{:.1f}"),
           ("Top/s", 8, "{:.3f}"), ("of f32 %", 9, "{:.1f}"), ("of fp16 %", 10, "{:.1f}"), ("busy %", 7, "{:.0f}"),
           ("W", 6, "{:.0f}"), ("GPU GB", 7, "{:.2f}"))


class Failure(Exception):
    """What was asked, and what the program said."""


def note(text):
    print(f"opencl: {text}", file=sys.stderr, flush=True)


def run(options, *arguments, allowed=(0,)):
    command = [options.qdyno, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=options.env, check=False, stdin=subprocess.DEVNULL)
    if done.returncode not in allowed:
        raise Failure(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout


def qdyno(options, *arguments, allowed=(0,)):
    """A command's JSON document."""
    return json.loads(run(options, *arguments, "-o", "json", "--quiet", allowed=allowed))


def share(value, ceiling):
    """Percent, or None where one of them is not known."""
    return 100 * value / ceiling if value and ceiling else None


def cell(column, value):
    _, width, form = column
    text = "n/a" if value is None else form.format(value)
    return text.ljust(width) if form == "{}" else text.rjust(width)


def line(values):
    print(" ".join(cell(column, value) for column, value in zip(COLUMNS, values)), flush=True)


def find_device(options):
    """The device as it is listed, and its ceilings."""
    document = qdyno(options, "detect", "--probe")
    listed = document["opencl"]
    if listed is None:
        raise Failure("the OpenCL devices could not be listed: see qdyno detect")
    found = [device for device in listed if device["name"] == options.device]
    ceilings = [c for c in document["ceilings"].get("opencl", []) if c["name"] == options.device]
    return (found[0] if found else None), (ceilings[0] if ceilings else {})


def models(options):
    """Files: those given, the bundled one, or made once and kept."""
    if options.models:
        return options.models
    if options.small:
        return [qdyno(options, "info")["path"]]
    os.makedirs(options.folder, exist_ok=True)
    files = []
    for shape in options.shapes.split(","):
        for recipe in options.formats.split(","):
            path = os.path.join(options.folder, f"synth-{shape}-{recipe}.gguf")
            if not os.path.exists(path):
                note(f"making {path}")
                run(options, "synth", "--shape", shape, "-R", recipe, path + ".part")
                os.rename(path + ".part", path)
            files.append(path)
    return files


def layer_operations(info):
    """Of one token's matrix products in the layers: embedding and output are looked up or made once a prompt."""
    outside = info["vocab"] * info["embd"] * (1 if info["tied_output"] else 2)
    return 2 * (info["params"] - outside)


def sensed(options, run_id, arm, workload):
    """Means over the timed runs of one workload; what no sensor told is missing."""
    with sqlite3.connect(f"file:{options.db}?mode=ro", uri=True) as db:
        rows = db.execute(
            "SELECT metric, avg(value) FROM sample JOIN cell ON cell.id = sample.cell_id WHERE run_id = ? AND arm = ? "
            "AND phase = 'bench' AND json_extract(worker_json, '$.workload') = ? GROUP BY metric",
            (run_id, arm, workload))
        return dict(rows.fetchall())


def measure(options, path):
    """Rows of figures, one for the device and one for the processor; None with a note when the model does not fit."""
    name = os.path.basename(path).removesuffix(".gguf").removeprefix("synth-")
    places = [f"device={options.device}"] + ([] if options.no_cpu else ["device=cpu"])
    info = qdyno(options, "info", "-m", path)
    plan = qdyno(options, "fit", "-m", path, "-c", str(options.prompt + options.gen), "-C", places[0], allowed=(0, 6))
    if not plan["rows"] or plan["rows"][0]["error"]:
        note(f"{name}: {plan['rows'][0]['error'] if plan['rows'] else 'no plan'}")
        return None
    wanted = [f"pp{options.prompt}", f"tg{options.gen}"]
    work = [flag for text in wanted for flag in ("-w", text)]
    configs = [flag for place in places for flag in ("-C", place)]
    document = qdyno(options, "bench", "-m", path, *configs, *work, "-r", str(options.repetitions))
    rows = []
    for arm, place in enumerate(places):
        mine = {row["workload"]: row for row in document["rows"] if row["config"] == place or
                (place == "device=cpu" and row["config"] == "default")}
        errors = {row["error"] for row in mine.values() if row["error"]}
        if errors or len(mine) < 2:
            note(f"{name} {place}: {'; '.join(errors) or 'not measured'}")
            continue
        told = sensed(options, document["run"], arm, wanted[1]) if not arm else {}
        rows.append({"name": name, "where": place.removeprefix("device="),
                     "decode": mine[wanted[1]]["decode_tok_s"], "prefill": mine[wanted[0]]["prefill_tok_s"],
                     "bytes": plan["rows"][0]["decode_read_bytes"], "operations": layer_operations(info),
                     **{key: told.get(metric) for key, metric in SENSORS.items()}})
    return rows


def show(row, ceilings):
    """Print it; returns its share of the copy bandwidth (None: not known, or of the processor)."""
    read_s = row["decode"] * row["bytes"] if row["decode"] else None
    work_s = row["prefill"] * row["operations"] if row["prefill"] else None
    known = ceilings if row["where"] != "cpu" else {}
    of_copy = share(read_s, known.get("copy_bytes_s"))
    line([row["name"], row["where"], row["decode"], read_s and read_s / 1e9, of_copy,
          share(read_s, known.get("read_bytes_s")), row["prefill"], work_s and work_s / 1e12,
          share(work_s, known.get("f32_ops_s")), share(work_s, known.get("f16_ops_s")),
          row["busy"] and 100 * row["busy"], row["power"], row["memory"] and row["memory"] / 1e9])
    return of_copy


def verdict(options, device, shares, failed):
    if not device["gpu"] or options.small:
        note(f"not judged: {'--small' if options.small else options.device + ' is no GPU'}")
        return EXIT_NOT_JUDGED
    if not shares or None in shares:
        note("not judged: a speed or the copy bandwidth was not measured")
        return EXIT_NOT_JUDGED
    good = sum(s >= 100 * WANTED_DECODE for s in shares)
    note(f"decode: {good} of {len(shares)} rows at {WANTED_DECODE:.0%} of the copy bandwidth or more; least {min(shares):.1f} %"
         + (f"; {failed} models not measured" if failed else ""))
    return EXIT_MISSED if good < len(shares) or failed else 0


def bench(options):
    device, ceilings = find_device(options)
    if not device:
        note(f"{options.device} is not here: qdyno detect lists the devices")
        return EXIT_NO_DEVICE
    giga = {key: f"{ceilings[key] / 1e9:.4g}" if ceilings.get(key) else "n/a"
            for key in ("copy_bytes_s", "read_bytes_s", "f32_ops_s", "f16_ops_s", "int8_ops_s")}
    print(f"{options.device}: {device['model']}, {device['platform']}, driver {device['driver']}")
    print(f"measured: copies {giga['copy_bytes_s']} GB/s, reads {giga['read_bytes_s']} GB/s, f32 {giga['f32_ops_s']} Gop/s, "
          f"fp16 {giga['f16_ops_s']} Gop/s, int8 {giga['int8_ops_s']} Gop/s")
    print(f"pp{options.prompt}, tg{options.gen}, {options.repetitions} repetitions each; sensors while it decodes", flush=True)
    if not options.small and not options.untuned:
        note("measuring the shapes of products")
        run(options, "detect", "--shapes", options.device, "--quiet")
    print(" ".join(name.ljust(width) if form == "{}" else name.rjust(width) for name, width, form in COLUMNS), flush=True)
    shares, failed = [], 0
    for path in models(options):
        try:
            rows = measure(options, path)
        except Failure as failure:  # one model's trouble is that model's
            note(str(failure))
            rows = None
        failed += not rows or rows[0]["where"] == "cpu"
        for row in rows or []:
            of_copy = show(row, ceilings)
            if row["where"] != "cpu":
                shares.append(of_copy)
    return verdict(options, device, shares, failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qdyno", required=True, help="the program")
    parser.add_argument("--folder", default="models", help="where made models are kept")
    parser.add_argument("--device", default="opencl:0")
    parser.add_argument("--shapes", default="1b,7b")
    parser.add_argument("--formats", default="q4_0,q4_K,q8_0")
    parser.add_argument("--small", action="store_true", help="the bundled model, short workloads, nothing judged")
    parser.add_argument("--untuned", action="store_true", help="with the shapes that are the default")
    parser.add_argument("--no-cpu", action="store_true", help="without the processor's figures")
    parser.add_argument("--prompt", type=int)
    parser.add_argument("--gen", type=int)
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("models", nargs="*", help="GGUF files instead of made ones")
    parser.error = lambda text: parser.exit(EXIT_USAGE, f"opencl: {text}\n")
    options = parser.parse_args()
    options.prompt = options.prompt or (64 if options.small else 512)
    options.gen = options.gen or (16 if options.small else 64)
    options.repetitions = options.repetitions or (1 if options.small else 5)
    with tempfile.TemporaryDirectory(prefix="qdyno-opencl-") as folder:
        options.env = dict(os.environ, XDG_DATA_HOME=folder)  # compiled kernels stay in the usual cache
        options.db = os.path.join(folder, "qdyno", "qdyno.db")
        try:
            return bench(options)
        except Failure as failure:
            note(str(failure))
            return EXIT_FAILED


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(EXIT_FAILED)
