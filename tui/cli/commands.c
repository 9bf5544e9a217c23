/* commands.c - COMMANDS, one row for each command. README.md says how to add one. */
#include "tui/cli/commands.h"

#include <string.h>

/* clang-format off */
const struct command COMMANDS[] = {
    { .name = "dashboard", .takes_model = true, .compares = true, .first_model_opens = true, .flags = FLAGS_DASHBOARD, .run = command_dashboard, .max_args = 2,
      .arguments = "[A B] [-m MODEL] [-w WORKLOAD]",
      .help = "open the dashboard, with A and B as the configs of the next A/B",
      .details = "`qdyno` without a command opens the dashboard. Without a terminal it prints this "
                 "help and exits with 4." },
    { .name = "detect", .group = GROUP_CHOOSE, .flags = FLAGS_DETECT, .run = command_detect,
      .arguments = "[--probe] [--record DIR | --machine DIR]",
      .help = "show the machine: CPU, caches, memory, GPUs; with --probe their speed",
      .details = "--record DIR copies what this machine reports into a folder. `--machine DIR` then shows "
                 "that machine on any other one, here and in `advise` (docs/machines.md). `advise "
                 "--machine FILE` also takes the JSON document of `detect --probe -o json`." },
    { .name = "telemetry", .flags = FLAGS_TELEMETRY, .run = command_telemetry,
      .arguments = "[--follow] [--metrics A,B] [--pid PID] [--period SENSOR=MS]...",
      .help = "show all sensors of this machine, and why the missing ones are missing",
      .details = "Reads every sensor once and prints its value, unit, period and source. --follow writes "
                 "one row per interval for other programs, until Ctrl-C, --count or --for. A field of a "
                 "row is the mean of the readings since the previous row. A sensor that is read less often "
                 "than rows are written keeps its last value. An empty field (null in JSON) is an unknown "
                 "value. A period shorter than the sensor's resolution is refused. QDYNO_PERIODS=A=MS,B=MS "
                 "sets the periods of every command that samples." },
    { .name = "models", .group = GROUP_USE, .flags = FLAGS_MODELS, .run = command_models, .max_args = 1,
      .arguments = "[TEXT] [--fits] [--runs] [--sort KEY] [--dir DIR]... [--search TEXT | --remote OWNER/REPO | --pull NAME]",
      .help = "list models on this machine: do they fit, and how fast are they",
      .details = "Looks in the caches of the Hugging Face hub and of llama.cpp, in Ollama's store, in the folders "
                 "of LM Studio and ModelScope, and in --dir and QDYNO_MODELS. TEXT keeps the models with it in "
                 "their name, architecture, quantization or source. Any name of the list, and any part that only "
                 "one of them has, may stand after -m and as the first argument of commands. Headers only are "
                 "read, and kept in the cache folder (docs/models-by-name.md)." },
    { .name = "info", .takes_model = true, .flags = FLAGS_INFO, .run = command_info,
      .arguments = "[-m MODEL] [--tensors | --experts TEXT [-c N] [--chunks N] [-C CONFIG]]",
      .help = "describe a model file: architecture, shapes, formats, bytes, tokenizer",
      .details = "--experts runs a text through a mixture of experts and counts the choices of its routers: the "
                 "hottest experts of each layer, how evenly they are used, and how many different ones work on "
                 "batches of 1 to 32 tokens, with the bytes that such a step reads and its predicted time (one "
                 "row = 1). Later predictions for this file use these numbers. csv has the layers only; json has everything. Status 4: the model has no experts "
                 "(docs/models.md)." },
    { .name = "run", .takes_model = true, .group = GROUP_USE, .flags = FLAGS_RUN, .run = command_run, .knob_flags = KNOB_FLAGS_ONE,
      .arguments = "[-m MODEL] (-p TEXT | --chat [-p TEXT] [--system TEXT]) [-n N] [-C CONFIG]",
      .help = "generate text, or chat; timings go to stderr",
      .details = "Writes the text token by token. Ctrl-C stops. Decoding is greedy unless --temp is given. With "
                 "--chat the text is a message, and the model's chat template writes the prompt: `qdyno run "
                 "--chat` converses, `qdyno run --chat --system 'Be brief.' -p 'Why is the sky blue?'` asks one "
                 "question. Special tokens are recognised in what the template writes, not in messages "
                 "(docs/chat.md)." },
    { .name = "tokenize", .takes_model = true, .flags = FLAGS_TOKENIZE, .run = command_tokenize,
      .arguments = "[-m MODEL] (-p TEXT | -f FILE)",
      .help = "print the token ids of a text as one JSON array" },
    { .name = "logits", .takes_model = true, .flags = FLAGS_LOGITS, .run = command_logits, .knob_flags = KNOB_FLAGS_ONE,
      .arguments = "[-m MODEL] --ids 1,2,3 --out FILE",
      .help = "write the raw logits after each of the given token ids, to compare engines",
      .details = "FILE receives little-endian f32 [ids][vocabulary]. Row i holds the logits after ids 0..i." },
    { .name = "bench", .takes_model = true, .group = GROUP_MEASURE, .flags = FLAGS_BENCH, .run = command_bench, .knob_flags = KNOB_FLAGS_GRID,
      .arguments = "[-m MODEL] [-p 512] [-n 128] [-d 0] [-C CONFIG]... [-r 5]",
      .help = "measure speed and memory of configs on workloads",
      .details = "Each config runs in a process of its own. A rate is total tokens divided by total "
                 "seconds; +- is the standard deviation over repetitions. A percentile is printed only if "
                 "enough tokens were timed (p50: 7, p95: 90, p99: 459). The share of the machine's limit "
                 "needs one earlier `qdyno detect --probe`. A config that cannot run becomes a row with "
                 "its error message. The exit status is that of the error only if no config ran." },
    { .name = "eval", .takes_model = true, .group = GROUP_MEASURE, .flags = FLAGS_EVAL, .run = command_eval, .knob_flags = KNOB_FLAGS_GRID,
      .work = FOR_PREFILL | FOR_QUALITY | FOR_MEMORY,
      .arguments = "[-m MODEL] -f TEXT [-c 512] [-C CONFIG]... [--ref CONFIG] [--gate EXPR]",
      .help = "measure perplexity on a text, and KL divergence from a reference",
      .details = "Perplexity is computed as llama-perplexity does: the text is cut into windows of -c "
                 "tokens and the second half of each window is scored. --ref runs a reference config "
                 "beside each config and compares both at the same positions: the mean KL divergence sum p "
                 "ln(p/q) in nats (p: reference, q: config), the share of positions where both have the "
                 "same most likely token, and the paired ratio of the perplexities. Both must tokenize the "
                 "text alike. The unit of the error estimates is the window, not the token: +- is one "
                 "standard error, from and to are a 95 % interval. Config flags apply to the reference "
                 "too, unless they list several values. p99 is printed if at least 459 positions were "
                 "scored. A text whose lines are JSON objects with messages is a file of conversations, which "
                 "the model's chat template renders (docs/chat.md). --gate takes figures of quality "
                 "(docs/ab.md) and decides the exit status: 0 "
                 "passed, 1 failed, 2 undecided. Every config must pass." },
    { .name = "ab", .takes_model = true, .compares = true, .group = GROUP_MEASURE, .flags = FLAGS_AB, .run = command_ab, .max_args = 8, .knob_flags = KNOB_FLAGS_ONE,
      .work = FOR_ALL | FOR_TRAIN,
      .arguments = "[-m MODEL] A B [C...] -w WORKLOAD [-w W2...] [--margin 1%] [--budget 5m] [--quality] [--gate EXPR]",
      .help = "compare configs in a paired experiment that ends in a verdict",
      .details = "A, B, ... are config lines. Each verdict says how a config compares with A. `--resume "
                 "ID` continues a run that was stopped, killed or undecided. Several -w: one for each config, or arms "
                 "of one config. Workloads: pp512, tg128, "
                 "pp512+tg128@d4096, tg64@b16, eval:FILE." },
    { .name = "claims", .flags = FLAGS_CLAIMS, .run = command_claims, .min_args = 1, .max_args = 1, .knob_flags = KNOB_FLAGS_ONE,
      .arguments = "quant [-m MODEL] [-w tg64] [--budget 5m]",
      .help = "check usual claims about quantization on this machine",
      .details = "Compares f16, q8_0 and q4_0 in one experiment, as `ab` does, and judges each claim by the "
                 "interval of its figure: confirmed if the whole interval lies in the claimed range, refuted "
                 "if no part of it does, else not decided. Bytes of weights are exact. Status 0: all are "
                 "confirmed; 1: one is refuted; 2: none is refuted and one is not decided; 3: the "
                 "measurement is invalid." },
    { .name = "advise", .takes_model = true, .group = GROUP_CHOOSE, .flags = FLAGS_ADVISE, .run = command_advise,
      .arguments = "[-m MODEL] [--goal GOAL] [--limit memory=8G]",
      .help = "rank configs for this machine by predicted speed, memory and quality" },
    { .name = "tune", .takes_model = true, .group = GROUP_CHOOSE, .flags = FLAGS_TUNE, .run = command_tune, .max_args = 32, .model_args = 32, .knob_flags = KNOB_FLAGS_ONE,
      .arguments = "[-m MODEL | FILE... | FOLDER] [--budget 10m] [-C CONFIG] [--target EXPR]",
      .help = "find the best config, confirm it in an A/B, and save it",
      .details = "Searches all configs that may help, then compares the best one with the current config "
                 "(-C and the settings given) in an A/B. A winner is written to "
                 "$XDG_CONFIG_HOME/qdyno/MODEL.conf. A candidate that can change answers wins only if its "
                 "perplexity is at most --max-ppl above that of the current config. Status 2: nothing won, "
                 "so nothing was saved. Of several files of one model, or a folder, it finds the best file. "
                 "--target asks for figures: status 0 reached, 1 not reached, 2 undecided." },
    { .name = "audit", .model_args = 1, .flags = FLAGS_AUDIT, .run = command_audit, .min_args = 1, .max_args = 1,
      .arguments = "FILE [--engine ENGINE]",
      .help = "check that an engine computes the same at all batch sizes, and the same as qdyno",
      .details = "Measures the perplexity of one text with FILE at batch sizes 1, 32 and 512, by qdyno and by "
                 "the other engine. Status 1: it disagrees with itself or with qdyno by more than the "
                 "tolerance, so some of its kernels compute wrong values for this file." },
    { .name = "apply", .takes_model = true, .group = GROUP_USE, .flags = FLAGS_APPLY, .run = command_apply, .max_args = 1,
      .arguments = "[-m MODEL] [CONFIG | --run ID | --remove]",
      .help = "save a config for a model: run, bench and the dashboard then use it",
      .details = "Without CONFIG, prints the saved config. The config is the last line of "
                 "$XDG_CONFIG_HOME/qdyno/MODEL.conf; the previous file becomes MODEL.conf.previous. --run "
                 "saves the winner of run ID: arm B of an A/B that ended `better`, else arm A; --arm "
                 "selects another. Wherever a config line is expected, `-C applied` means the saved "
                 "config, `-C default` no saved config, and `-C @FILE` the config in FILE. The output "
                 "includes the nearest llama.cpp command line, if there is one." },
    { .name = "recipe", .takes_model = true, .flags = FLAGS_RECIPE, .run = command_recipe, .knob_flags = KNOB_FLAGS_ONE,
      .arguments = "[-m MODEL] [--like FORMAT | --size BYTES | --kld NATS] [--out FILE] [--gguf FILE]",
      .help = "find a format for each tensor by measurement, and check the mix on other text",
      .details = "Quantizes one tensor at a time to each format and measures the KL divergence of the "
                 "model's predictions. A Lagrangian allocation of these costs gives the recipe. A text "
                 "that the search did not use then compares the recipe with the best uniform format of at "
                 "most its size, window by window. Status 0: the recipe is closer to the original model; "
                 "1: it is not; 2: undecided, or the budget is too short. Only a recipe that is closer is written (--out, --gguf). The "
                 "database keeps all costs, so that a search that was stopped continues where it ended." },
    { .name = "govern", .takes_model = true, .flags = FLAGS_GOVERN, .run = command_govern, .min_args = 2, .max_args = 8, .knob_flags = KNOB_FLAGS_ONE,
      .arguments = "CONFIG CONFIG [CONFIG...] --rule RULE [-m MODEL] [-w WORKLOAD | --port N] [--for TIME | -n N]",
      .help = "serve requests with the most exact of several configs that a rule allows",
      .details = "List the CONFIGs from the most exact to the cheapest. After --down requests in a row "
                 "beyond the rule's limit, the next cheaper config answers. After --up requests in a row "
                 "well within the limit, the more exact config is tried again; each failed try doubles the "
                 "wait. Every switch is printed with its reason and, some requests later, with its effect, "
                 "and is stored in the database. Under a memory rule, unused configs are unloaded. With --port, real clients are "
                 "answered over HTTP as by `qdyno serve`, and a switch loses no request." },
    { .name = "fit", .takes_model = true, .group = GROUP_CHOOSE, .flags = FLAGS_FIT, .run = command_fit, .knob_flags = KNOB_FLAGS_GRID, .work = FOR_MEMORY,
      .arguments = "[-m MODEL] [-c CTX] [-C CONFIG]... [--load]",
      .help = "print the memory plan in bytes; with --load what loading takes" },
    { .name = "calibrate", .model_args = 1, .flags = FLAGS_CALIBRATE, .run = command_calibrate, .max_args = 1,
      .arguments = "IN [-f TEXT] --out FILE | --show FILE",
      .help = "record statistics of a model's activations on a text, for methods that need them",
      .details = "One pass over the text serves all methods: mean squares (the importance matrix), means "
                 "and largest magnitudes, ranges and histograms of the inputs of every matrix, computed in "
                 "f32, layer by layer within --memory. The file stores the model's hash and is refused for "
                 "any other model. `--show X --imatrix Y` converts an existing file." },
    { .name = "quantize", .model_args = 1, .group = GROUP_USE, .flags = FLAGS_QUANTIZE, .run = command_quantize, .min_args = 2, .max_args = 2,
      .arguments = "IN OUT -R RECIPE [--calib FILE] [--force]",
      .help = "write a quantized model file",
      .details = "RECIPE is the part of a config line that chooses numbers: a format (q4_K), a method "
                 "(gptq,bits=3,group_size=64) or METHOD:FORMAT, and tensors=PATTERN:FORMAT;... for single "
                 "tensors. Standard formats load in other GGUF programs; the others carry qdyno.* "
                 "metadata. If Ctrl-C, a full disk or a kill ends the command, give it again: it continues "
                 "from OUT.partial. NMSE is sum (w-w')^2 / sum w^2 of the written weights w' against those "
                 "of IN." },
    { .name = "methods", .flags = FLAGS_METHODS, .run = command_methods, .knob_flags = KNOB_FLAGS_ONE,
      .arguments = "[-m MODEL] [--method NAME]... [-C CONFIG]... [--eval | -f TEXT]",
      .help = "list quantization methods, or measure their error on a model",
      .details = "Without -m, lists what each method does, its formats, parameters and needs. With -m, "
                 "quantizes the model with every method at its default parameters (or with each -C line) "
                 "and compares the result with the model, tensor by tensor. --eval and -f also measure "
                 "perplexity, KL divergence and how often both have the same most likely token. Config "
                 "flags apply to all lines; --precision highest leaves only the rounding of the method "
                 "itself." },
    { .name = "import", .flags = FLAGS_IMPORT, .run = command_import, .max_args = 2,
      .arguments = "FOLDER OUT [--verify]",
      .help = "write a Hugging Face checkpoint as a GGUF file, without loss",
      .details = "Codes, scales and zero points of quantized checkpoints stay as they are. --verify reads OUT again "
                 "and compares every tensor with the checkpoint: are the codes identical, and what is the largest "
                 "difference of a weight? The exit status is 1 when something differs by more than the rounding of "
                 "one scale. All commands read the folder itself, too: -m FOLDER (docs/import.md)." },
    { .name = "synth", .flags = FLAGS_SYNTH, .run = command_synth, .max_args = 1,
      .arguments = "--shape SHAPE [--arch ARCH] [-R FORMAT] OUT",
      .help = "write a model of any shape with random weights" },
    { .name = "train", .flags = FLAGS_TRAIN, .run = command_train, .max_args = 1,
      .arguments = "OUT [--steps N] [--amp off|bf16|fp16] [--checkpoint-every K]",
      .help = "train a small model from nothing and test it",
      .details = "Trains on stories from a grammar of known entropy, so the report states how far the "
                 "model is from the best possible loss. OUT appears when training is over. Until then "
                 "OUT.train holds the state, and the same command continues after Ctrl-C or a kill. The "
                 "same options and seed give the same model on any number of threads and processes." },
    { .name = "stories", .flags = FLAGS_STORIES, .run = command_stories,
      .arguments = "[-n 10] [--split SPLIT] | -f FILE",
      .help = "write stories of the training grammar, or test whether texts are such stories",
      .details = "Writes one story a line; formats other than md add -log p in nats. With -f, reads one "
                 "text a line and reports whether the grammar can produce it, and if not, how many of its "
                 "first characters it can. `qdyno run --temp 1` produces lines to test." },
    { .name = "history", .group = GROUP_WATCH, .flags = FLAGS_HISTORY, .run = command_history,
      .arguments = "[--filter TEXT] [--detect [--metric M] | --summary TIME]",
      .help = "list past runs, find changes in them, or sum up a time",
      .details = "--detect orders the results of each model, config, workload and machine by time, divides "
                 "them by the canary (a fixed reference workload timed beside every run), and reports "
                 "changes of level with date, size, confidence, priority and what changed on the machine "
                 "at that time, drifts that may be starting, and outliers. Status 1: some config is now "
                 "slower or worse than before its last change. Too few runs are no failure: the status is 0 "
                 "and the text says how many are missing." },
    { .name = "compare", .flags = FLAGS_COMPARE, .run = command_compare, .min_args = 2, .max_args = 2,
      .arguments = "ID ID [--metric M] [--margin 1%]",
      .help = "compare two past runs: what changed, and whether the results differ",
      .details = "The verdict says how the second run compares with the first; verdicts and statuses are "
                 "those of `ab`. The runs took place at two times, so the difference contains everything "
                 "that changed in between. `normalized` removes the part that also slowed the canary, a "
                 "fixed reference workload. `ab` and `baseline check` measure both sides now." },
    { .name = "replay", .flags = FLAGS_REPLAY, .run = command_replay, .min_args = 1, .max_args = 1,
      .arguments = "ID",
      .help = "repeat an A/B and report whether the result is the same",
      .details = "Runs the same specification with the same seed on the same model files, verified by "
                 "their hashes, as a new run. Reproduced (0): the difference of the two effects lies "
                 "within the run's margin. Not reproduced (1): it excludes 0 and is larger than the "
                 "margin. Inconclusive (2): neither. Invalid (3): one of the runs is invalid." },
    { .name = "baseline", .flags = FLAGS_BASELINE, .run = command_baseline, .min_args = 1, .max_args = 3, .knob_flags = KNOB_FLAGS_ONE,
      .arguments = "set NAME [ID | CONFIG] | list | check [NAME] [CONFIG]",
      .help = "save a reference config, and test for regressions against it",
      .details = "`set` saves the better config of run ID (or --arm), or a config line with -m, -w and "
                 "--metric: the champion. `check` measures the champion and a challenger (CONFIG, default "
                 "the default config; -m another model) in an A/B: status 0 no regression, 1 regression, 2 "
                 "inconclusive, 3 invalid. The stored value is only printed, never compared with." },
    { .name = "show", .group = GROUP_WATCH, .flags = FLAGS_SHOW, .run = command_show, .min_args = 1, .max_args = 1,
      .arguments = "ID [--capsule]",
      .help = "print a past run again, from the database",
      .details = "With -o sql, the output is not the table but SQL statements that create the run with all "
                 "its cells in another database (docs/history.md)." },
    { .name = "report", .flags = FLAGS_REPORT, .run = command_report, .max_args = 1,
      .arguments = "ID --out FILE.html|FILE.md|FILE.svg | --all DIR [-m FILE] [--machine ID]",
      .help = "write a run as one self-contained file for other people, or all runs as a site",
      .details = "The file's ending chooses the form: a page, Markdown with plots in characters, or a "
                 "picture of verdict, effect and arms. The file loads nothing from elsewhere. A run that "
                 "failed, was stopped or is still going on has a report, too, which states what is missing. --all "
                 "writes an index sorted by date, a page of the trade-offs between speed, loss and memory, and "
                 "one page for each experiment; it replaces only pages that it wrote before." },
    { .name = "push", .flags = FLAGS_PUSH, .run = command_push, .max_args = 1,
      .arguments = "[ID] [--url URL] [--otlp URL] | --textfile FILE.prom | --list | --retry | --drop ID",
      .help = "send the outcome of a run to a monitoring system",
      .details = "Without ID: the newest finished A/B. If the gateway cannot be reached, the outcome is "
                 "stored and a later push sends it. --otlp sends the run as a trace and its outcome as "
                 "metrics to an OpenTelemetry collector, using the variables OTEL_EXPORTER_OTLP_*. Without "
                 "--url and --otlp, the outcome goes to every receiver that the environment names. "
                 "--textfile instead writes the latest outcome of every experiment for the node exporter's "
                 "textfile collector. Passwords come from files or from the environment "
                 "(QDYNO_PUSH_PASSWORD, QDYNO_PUSH_BEARER), never from the command line, which every user "
                 "of the machine can read." },
    { .name = "cache", .flags = FLAGS_CACHE, .run = command_cache, .min_args = 1, .max_args = 1,
      .arguments = "TRACE [--blocks N,...] [--evict POLICY]...",
      .help = "compare eviction policies of a prefix cache on a trace",
      .details = "TRACE is a text file with a JSON object in each line; \"hash_ids\" has the names of the "
                 "prompt's blocks, in order, as in the Mooncake traces. Requests are replayed one after "
                 "another. `found` is the share of prompt blocks that need not be computed: those before the "
                 "first one that the cache has not. The policy farthest evicts the block that is needed again "
                 "last, which only a trace can know." },
    { .name = "prune", .flags = FLAGS_PRUNE, .run = command_prune,
      .arguments = "--url URL [--older-than 30d | --all] [--dry-run]",
      .help = "delete groups that qdyno pushed to a Pushgateway",
      .details = "A Pushgateway keeps every group until someone deletes it. This command deletes only "
                 "groups that this database recorded as pushed. A group that no longer exists is no error." },
    { .name = "serve", .takes_model = true, .group = GROUP_USE, .flags = FLAGS_SERVE, .run = command_serve, .knob_flags = KNOB_FLAGS_ONE, .work = FOR_ALL | FOR_LOAD,
      .arguments = "[-m MODEL] [-C CONFIG] [--host ADDRESS] [--port N] [--parallel N] [--processes N] [--api-key-file FILE]",
      .help = "serve a model to programs that speak OpenAI's interface",
      .details = "Answers /v1/completions and /v1/chat/completions (also as streams), /v1/models, /tokenize, "
                 "/detokenize, /health and /metrics until SIGTERM or Ctrl-C. Then new requests are refused, those "
                 "that run may end within --drain, and the status is 0; a second signal ends at once. Requests share "
                 "the model: the keys max_sequences, step_tokens, itl_limit, schedule, kv_blocks, prefix_cache, evict "
                 "and preempt say how. With --processes MIN..MAX the number of processes follows the load; each change is stored as an "
                 "alert (qdyno watch --list). Nothing else is stored in the database. docs/serve.md." },
    { .name = "serve-metrics", .flags = FLAGS_SERVE_METRICS, .run = command_serve_metrics,
      .arguments = "[--port N] [--listen ADDRESS] [--otlp URL]",
      .help = "serve sensors and results to Prometheus over HTTP",
      .details = "Serves sensors, GPUs, all measurements as counters and histograms, and the latest "
                 "verdict of every experiment under /metrics until SIGTERM or Ctrl-C (status 0). The "
                 "database is only read. If it is missing, locked or of another version, the page shows "
                 "qdyno_database_up 0. Metric names: docs/monitoring.md." },
    { .name = "watch", .takes_model = true, .group = GROUP_WATCH, .flags = FLAGS_WATCH, .run = command_watch, .knob_flags = KNOB_FLAGS_ONE,
      .arguments = "[--baseline NAME | -m MODEL -w WORKLOAD -C CONFIG] [--every 30m] [--once] [--webhook "
                   "URL]",
      .help = "measure repeatedly without a user, and raise alerts",
      .details = "Every round measures the champion of a baseline (or what -m, -w and -C select) and the "
                 "canary, a fixed reference workload. It compares them with the baseline, or with the "
                 "usual values of this machine, and reports each alert that fires: as a line, by the bell, "
                 "to a webhook, to an Alertmanager. Alerts that could not be delivered are kept and sent "
                 "later. A round is postponed while other programs keep the machine busy. The state is in "
                 "the database, so a restart repeats no alert. SIGTERM ends the watch with status 0. "
                 "--once: 0 no alert, also in the first round, which has nothing to compare with; 1 a "
                 "warning or worse; 3 not measurable now. Alerts and their thresholds: --print-alerts and docs/alerts.md." },
    { .name = "doctor", .group = GROUP_WATCH, .run = command_doctor,
      .arguments = "",
      .help = "check what is installed and usable, and say how to fix the rest" },
    { .name = "help", .flags = FLAGS_HELP, .run = command_help, .max_args = 1,
      .arguments = "[COMMAND | TOPIC | topics] [--all] [--man] [--bash | --zsh | --fish]",
      .help = "print help on a command or topic, the man page, or the shell completion" },
    { .name = "complete", .run = command_complete, .hidden = true, .min_args = 1, .max_args = 1,
      .arguments = "LINE",
      .help = "print what may follow on a command line, for the completion of shells" },
    { .name = "worker", .flags = FLAGS_WORKER, .run = command_worker, .hidden = true,
      .arguments = "--fd N",
      .help = "run the configs of one arm on behalf of another qdyno process" },
    { .name = "rank", .flags = FLAGS_RANK, .run = command_rank, .hidden = true,
      .arguments = "--socket PATH",
      .help = "be one of several processes that run one model; mpirun starts it" },
};
/* clang-format on */
const size_t COMMAND_COUNT = COUNT_OF(COMMANDS);

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (!strcmp(COMMANDS[i].name, name)) return &COMMANDS[i];
    return NULL;
}
