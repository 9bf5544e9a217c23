/* commands.c - COMMANDS: one row per command. Adding one = a file and a row. */
#include "tui/cli/commands.h"

#include <string.h>

const struct command COMMANDS[] = {
    { "dashboard", "[A B] [-m MODEL] [-w WORKLOAD]", "the dashboard, prefilled with two config lines",
      FLAGS_DASHBOARD, command_dashboard, false, 0, 2, KNOB_FLAGS_NONE,
      "What `qdyno` alone starts. Without a terminal it says so and runs `qdyno tune` with a short budget." },
    { "detect", "[--probe] [--record DIR | --machine DIR]",
      "the machine: CPU, caches, memory, GPUs, and what they can do", FLAGS_DETECT, command_detect, false, 0,
      0, KNOB_FLAGS_NONE,
      "--record DIR keeps the machine as a folder that --machine DIR shows, here and in `advise`, on any machine "
      "(docs/machines.md). The JSON document (-o json) describes it, too: `qdyno advise --machine FILE`." },
    { "telemetry", "[--follow] [--metrics A,B] [--pid PID] [--period SENSOR=MS]...",
      "what this machine tells about itself now, and why the rest is silent", FLAGS_TELEMETRY,
      command_telemetry, false, 0, 0, KNOB_FLAGS_NONE,
      "One look at every sensor with unit, period and source; --follow writes rows for other programs until Ctrl-C, --count or "
      "--for. A field of a row is the mean of what was read since the row before; sensors read more seldom keep their last "
      "value; empty (null) is unknown. Periods shorter than a sensor resolves are refused; QDYNO_PERIODS=A=MS,B=MS sets them "
      "for every command that samples." },
    { "info", "[-m MODEL] [--tensors]",
      "what a model file is: architecture, shapes, formats, bytes, tokenizer", FLAGS_INFO, command_info,
      false, 0, 0, KNOB_FLAGS_NONE, NULL },
    { "run", "[-m MODEL] -p TEXT [-n N] [-C CONFIG]", "generate text; timings on stderr", FLAGS_RUN,
      command_run, false, 0, 0, KNOB_FLAGS_ONE,
      "Text is written as its tokens come; Ctrl-C stops. Greedy unless --temp is given." },
    { "tokenize", "[-m MODEL] (-p TEXT | -f FILE)", "token ids of a text, as one JSON array", FLAGS_TOKENIZE,
      command_tokenize, false, 0, 0, KNOB_FLAGS_NONE, NULL },
    { "logits", "[-m MODEL] --ids 1,2,3 --out FILE", "raw logits of given ids, for conformance checks",
      FLAGS_LOGITS, command_logits, false, 0, 0, KNOB_FLAGS_ONE,
      "FILE gets little-endian f32 [ids][vocabulary]: row i is what the model says after ids 0..i." },
    { "bench", "[-m MODEL] [-p 512] [-n 128] [-d 0] [-C CONFIG]... [-r 5]",
      "time workloads on a grid of configs", FLAGS_BENCH, command_bench, false, 0, 0, KNOB_FLAGS_GRID,
      "Each config runs in a process of its own. Rates are total tokens over total seconds; +- is the standard "
      "deviation over repetitions. A percentile is printed only where enough tokens were timed to know it (p50: 7, "
      "p95: 90, p99: 459). The share of the machine's limit needs `qdyno detect --probe` once. A config that cannot run is a row with its "
      "error; the status is the failure's only when none ran." },
    { "eval", "[-m MODEL] -f TEXT [-c 512] [-C CONFIG]... [--ref CONFIG]",
      "perplexity of a text, with its error; against a reference: KL divergence", FLAGS_EVAL, command_eval,
      false, 0, 0, KNOB_FLAGS_GRID,
      "Computed as llama-perplexity does: windows of -c tokens, the second half of each scored. --ref runs a "
      "reference beside each config and compares them at the same positions: the mean over them of the KL divergence "
      "sum p ln(p/q) in nats (p the reference's, q the config's), how often both hold the same token most likely, "
      "and the ratio of the perplexities, paired. Both files must read the text as the same tokens. Errors count windows, "
      "not tokens: +- is one standard error, from and to are 95 %. Flags that set a knob hold for the reference, too, "
      "unless they list several values. p99 is printed from 459 positions on." },
    { "ab", "[-m MODEL] A B [C...] -w WORKLOAD [--margin 1%] [--budget 5m] [--quality] [--gate EXPR]",
      "the experiment: configs, paired, with a verdict", FLAGS_AB, command_ab, false, 0, 8, KNOB_FLAGS_ONE,
      "A, B, ... are config lines; verdicts are about the others seen from A. A stopped, killed or "
      "undecided run goes on with --resume ID. Workloads: pp512, tg128, pp512+tg128@d4096, tg64@b16, eval:FILE." },
    { "advise", "[-m MODEL] [--goal GOAL] [--limit memory=8G]",
      "configs for this machine, ranked, with reasons", FLAGS_ADVISE, command_advise, false, 0, 0,
      KNOB_FLAGS_NONE, NULL },
    { "tune", "[-m MODEL] [--budget 10m] [-C CONFIG]", "find the best config, confirm it by an A/B, keep it",
      FLAGS_TUNE, command_tune, false, 0, 0, KNOB_FLAGS_ONE,
      "Advises, then races the best candidate against the current config (-C and the settings given). The winner is "
      "written to $XDG_CONFIG_HOME/qdyno/MODEL.conf. A candidate that changes answers is kept only if its perplexity "
      "stays within --max-ppl of the current config's." },
    { "apply", "[-m MODEL] [CONFIG | --run ID | --remove]",
      "keep a config for a model: what `run`, `bench` and the dashboard use then", FLAGS_APPLY, command_apply,
      false, 0, 1, KNOB_FLAGS_NONE,
      "Without CONFIG: what is kept. The config lies in $XDG_CONFIG_HOME/qdyno/MODEL.conf, whose last line it is; the one "
      "before becomes MODEL.conf.previous. --run keeps what won run ID (an A/B that ended `better`, else its arm A; --arm "
      "another). `-C applied` names it wherever a config line stands, `-C default` leaves it out, `-C @FILE` reads any such "
      "file. The llama.cpp command line that comes nearest is printed where one exists." },
    { "recipe", "[-m MODEL] [--like FORMAT | --size BYTES | --kld NATS] [--out FILE] [--gguf FILE]",
      "which tensor gets which format: found by measuring, checked on held-out text", FLAGS_RECIPE,
      command_recipe, false, 0, 0, KNOB_FLAGS_ONE,
      "Every tensor is stored in each format by itself and costs the KL divergence that the model's predictions then have; "
      "a Lagrangian allocation of those costs makes the recipe; a text that took no part in it compares the recipe with the "
      "best uniform format of at most its size, window by window. Status 0: the mix is nearer to the model; 1: it is not; 2: "
      "that cannot be told. Only a mix that is nearer is written (--out, --gguf). Costs stay in the database: a search that "
      "was ended goes on where it was." },
    { "govern", "CONFIG CONFIG [CONFIG...] --rule RULE [-m MODEL] [-w WORKLOAD] [--for TIME | -n N]",
      "serve with several recipes loaded, the most exact that a rule allows", FLAGS_GOVERN, command_govern,
      false, 2, 8, KNOB_FLAGS_ONE,
      "CONFIGs stand from the most exact to the cheapest. Beyond the rule's limit for --down requests in a row the next "
      "cheaper one answers; well within it for --up in a row the more exact one is tried again, later each time that had "
      "to be taken back. Every switch is told with its reason and, some requests later, its effect; all of it is in the "
      "database. Under a memory rule what is not used is unloaded." },
    { "fit", "[-m MODEL] [-c CTX] [-C CONFIG]... [--load]", "memory plan in bytes, predicted and actual",
      FLAGS_FIT, command_fit, false, 0, 0, KNOB_FLAGS_GRID, NULL },
    { "calibrate", "IN [-f TEXT] --out FILE | --show FILE",
      "what a model's activations are like on a text, for methods that want to know", FLAGS_CALIBRATE,
      command_calibrate, false, 0, 1, KNOB_FLAGS_NONE,
      "One pass over the text for all methods: mean squares (importance matrix), mean and largest magnitudes, ranges and "
      "histograms of what every matrix is multiplied with, computed exactly (f32), layer by layer within --memory. The file "
      "remembers the model, and is refused for any other. `--show X --imatrix Y` converts." },
    { "quantize", "IN OUT -R RECIPE [--calib FILE] [--force]", "a model file by a recipe", FLAGS_QUANTIZE,
      command_quantize, false, 2, 2, KNOB_FLAGS_NONE,
      "RECIPE is what a config line says about numbers: a format (q4_K), a method (gptq,bits=3,group_size=64) or "
      "METHOD:FORMAT, and tensors=PATTERN:FORMAT;... for single tensors. Formats of the field load in other GGUF programs; "
      "the rest carries qdyno.* metadata. What Ctrl-C, a full disk or a kill ended goes on from OUT.partial when the same "
      "command is given again. NMSE is sum (w-w')^2 / sum w^2, of what was written against IN." },
    { "methods", "[-m MODEL] [--method NAME]... [-C CONFIG]... [--eval | -f TEXT]",
      "ways to quantize, and what they do to a model", FLAGS_METHODS, command_methods, false, 0, 0,
      KNOB_FLAGS_ONE,
      "Without -m: what each method does, its formats, parameters and needs. With -m every method at its default "
      "parameters (or each -C line) is made into the cache, decoded and compared with the model, tensor by tensor; with "
      "--eval or -f also run against it: perplexity, KL divergence and how often both hold the same token most likely. Flags "
      "that set a knob hold for all lines; --precision highest leaves only what the method itself rounds." },
    { "synth", "--shape SHAPE [--arch ARCH] [-R FORMAT] OUT", "a model of any shape with random weights",
      FLAGS_SYNTH, command_synth, false, 0, 1, KNOB_FLAGS_NONE, NULL },
    { "train", "OUT [--steps N] [--amp off|bf16|fp16] [--checkpoint-every K]",
      "make a model from nothing: vocabulary, training, examination", FLAGS_TRAIN, command_train, false, 0, 1,
      KNOB_FLAGS_NONE,
      "Reads stories made by a grammar whose entropy is known, so the report says how far from the best possible loss "
      "the model is. OUT appears when training is over; until then OUT.train holds all that is needed: the same command "
      "goes on after Ctrl-C or a kill. Same options and seed, same model, on any number of threads." },
    { "stories", "[-n 10] [--split SPLIT] | -f FILE",
      "texts in the language that `train` teaches, and what they are worth", FLAGS_STORIES, command_stories,
      false, 0, 0, KNOB_FLAGS_NONE,
      "One story a line; in other formats than md with -log p in nats. With -f it judges: is each line a story the grammar "
      "tells, and up to where could it be? `qdyno run` with --temp 1 gives lines to judge." },
    { "history", "[--filter TEXT] [--detect [--metric M]]", "what was measured, and whether it changed",
      FLAGS_HISTORY, command_history, false, 0, 0, KNOB_FLAGS_NONE,
      "--detect puts the results of each model, config, workload and machine in order of time, divides them by the canary "
      "that runs beside every run, and names changes of level with date, size, confidence, what changed on the machine "
      "then, and an urgency; drifts that may be beginning; runs unlike the others. Status 1: some config is now at a lower "
      "level than before its last change; 2: too few runs to say." },
    { "compare", "ID ID [--metric M] [--margin 1%]", "two runs side by side: what changed, and does it show",
      FLAGS_COMPARE, command_compare, false, 2, 2, KNOB_FLAGS_NONE,
      "The second is seen from the first; verdicts and statuses are those of `ab`. Two moments are compared, so "
      "whatever changed between them is in the difference: `normalized` takes out what slowed a fixed piece of work as "
      "well. `ab` and `baseline check` measure both sides now." },
    { "replay", "ID", "a run again, and whether it says the same", FLAGS_REPLAY, command_replay, false, 1, 1,
      KNOB_FLAGS_NONE,
      "The same specification and seed on the same model files, which are checked by their hash, as a new run. "
      "Reproduced (0) when the difference of the two effects lies within the run's margin, not reproduced (1) when it "
      "excludes 0 and is larger; inconclusive (2) otherwise; invalid (3) when either run is." },
    { "baseline", "set NAME [ID | CONFIG] | list | check [NAME] [CONFIG]",
      "keep a champion; measure it again, now, against a challenger", FLAGS_BASELINE, command_baseline, false,
      1, 3, KNOB_FLAGS_ONE,
      "`set` keeps the better config of run ID (or --arm), or a config line with -m, -w and --metric. `check` runs the "
      "champion and the challenger (CONFIG, default the default config; -m another model) as an A/B: status 0 no "
      "regression, 1 regression, 2 inconclusive, 3 invalid. A stored number is shown and never compared with." },
    { "show", "ID [--capsule]", "one run again, from the database", FLAGS_SHOW, command_show, false, 1, 1,
      KNOB_FLAGS_NONE, NULL },
    { "report", "ID --out FILE.html|FILE.md|FILE.svg",
      "an experiment as one file for somebody who was not there", FLAGS_REPORT, command_report, false, 1, 1,
      KNOB_FLAGS_NONE,
      "The file's ending says what it is: a page, Markdown with plots drawn in characters, or a picture of verdict, effect "
      "and arms. Nothing in it is loaded from anywhere. Runs that failed, were stopped or go on have a report, too: it says "
      "what is missing." },
    { "push", "[ID] [--url URL] [--otlp URL] | --textfile FILE.prom",
      "tell a monitoring system the outcome of a run", FLAGS_PUSH, command_push, false, 0, 1, KNOB_FLAGS_NONE,
      "Without ID: the newest finished A/B. When the gateway cannot be reached the outcome is kept and sent by a "
      "later push. --otlp sends the run as a trace, and its outcome as metrics, to an OpenTelemetry collector; the variables "
      "OTEL_EXPORTER_OTLP_* count. Without options all are told whom the environment names. --textfile writes the latest "
      "outcome of every experiment for the node exporter's textfile collector instead. Passwords come from files or the environment (QDYNO_PUSH_PASSWORD, QDYNO_PUSH_BEARER), never "
      "from the command line, where everybody could read them." },
    { "prune", "--url URL [--older-than 30d | --all] [--dry-run]", "delete our old groups from a Pushgateway",
      FLAGS_PRUNE, command_prune, false, 0, 0, KNOB_FLAGS_NONE,
      "A gateway keeps every group until somebody deletes it. Only groups that this database remembers pushing are "
      "deleted; one that is gone already is fine." },
    { "serve-metrics", "[--port N] [--listen ADDRESS] [--otlp URL]", "a page for Prometheus to scrape",
      FLAGS_SERVE_METRICS, command_serve_metrics, false, 0, 0, KNOB_FLAGS_NONE,
      "Sensors, GPUs, everything measured so far as counters and histograms, and the latest verdict of every experiment, "
      "under /metrics until SIGTERM or Ctrl-C (status 0). The database is only read: one that is missing, locked or of "
      "another version shows as qdyno_database_up 0. Names: docs/monitoring.md." },
    { "watch", "[--baseline NAME | -m MODEL -w WORKLOAD -C CONFIG] [--every 30m] [--once] [--webhook URL]",
      "look at this machine unattended: sensors, measurements, alerts", FLAGS_WATCH, command_watch, false, 0,
      0, KNOB_FLAGS_ONE,
      "Every round measures the champion of a baseline (or what -m, -w and -C say) and the canary, compares them with the "
      "baseline or with what is usual here, and tells what fires: a line each, the bell, a webhook, an Alertmanager; what could "
      "not be told waits. Nothing is measured while others keep the machine busy. State lies in the database: a restart "
      "repeats nothing. SIGTERM ends it with status 0. --once: 0 nothing fires, 1 a warning or worse does, 2 nothing to compare "
      "with yet, 3 not measurable now. Alerts and their thresholds: --print-alerts and docs/alerts.md." },
    { "doctor", "", "what is installed and usable, and what to do about what is not", NULL, command_doctor,
      false, 0, 0, KNOB_FLAGS_NONE, NULL },
    { "help", "[COMMAND | knobs] [--man] [--bash]", "this help, the man page, the completion", FLAGS_HELP,
      command_help, false, 0, 1, KNOB_FLAGS_NONE, NULL },
    { "worker", "--fd N", "the process behind one arm", FLAGS_WORKER, command_worker, true, 0, 0,
      KNOB_FLAGS_NONE, NULL },
};
const size_t COMMAND_COUNT = COUNT_OF(COMMANDS);

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (!strcmp(COMMANDS[i].name, name)) return &COMMANDS[i];
    return NULL;
}
