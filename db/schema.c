/* db/schema.c - the tables, as the steps that built them.
 *
 * Step i brings a file of user_version i to i + 1. A step that was released is never edited: a change is a
 * new step, and a fixture of the version before it joins tests/db/fixtures. Long and narrow: a new metric is
 * a row, not a column. STRICT, so that a text in a number column is an error and not a surprise. */
#include "db/store.h"

const char *const SCHEMA_STEPS[] = {
    /* 0 -> 1: runs and what was measured in them */
    "PRAGMA application_id = 1902410094;" /* SCHEMA_APPLICATION_ID */
    "CREATE TABLE machine("
    "  id TEXT PRIMARY KEY, json TEXT NOT NULL, first_ms INTEGER NOT NULL) STRICT;"
    "CREATE TABLE model("
    "  sha256 TEXT PRIMARY KEY, name TEXT NOT NULL, path TEXT NOT NULL, json TEXT NOT NULL,"
    "  first_ms INTEGER NOT NULL) STRICT;"
    "CREATE TABLE run("
    "  id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, state TEXT NOT NULL,"
    "  machine TEXT REFERENCES machine(id), model_sha256 TEXT REFERENCES model(sha256),"
    "  model_name TEXT NOT NULL, workload TEXT NOT NULL, label TEXT NOT NULL, metric TEXT NOT NULL,"
    "  seed INTEGER NOT NULL, verdict TEXT NOT NULL, effect_ratio REAL, started_ms INTEGER NOT NULL,"
    "  ended_ms INTEGER NOT NULL, spec_json TEXT, outcome_json TEXT) STRICT;"
    "CREATE TABLE cell("
    "  id INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  run_id INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,"
    "  arm INTEGER NOT NULL, block INTEGER NOT NULL, slot INTEGER NOT NULL, phase TEXT NOT NULL,"
    "  discarded INTEGER NOT NULL, discard_reason TEXT NOT NULL, config TEXT NOT NULL,"
    "  work_hash TEXT NOT NULL, output_hash TEXT NOT NULL, started_ms INTEGER NOT NULL, seconds REAL,"
    "  error TEXT NOT NULL, worker_json TEXT NOT NULL) STRICT;"
    "CREATE INDEX cell_of_run ON cell(run_id);"
    "CREATE TABLE measurement("
    "  cell_id INTEGER NOT NULL REFERENCES cell(id) ON DELETE CASCADE,"
    "  metric TEXT NOT NULL, unit TEXT NOT NULL, value REAL,"
    "  PRIMARY KEY(cell_id, metric)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE sample("
    "  cell_id INTEGER NOT NULL REFERENCES cell(id) ON DELETE CASCADE,"
    "  t_ns INTEGER NOT NULL, metric TEXT NOT NULL, value REAL) STRICT;"
    "CREATE INDEX sample_of_cell ON sample(cell_id);"
    "CREATE TABLE itl(" /* inter-token latencies of a cell: little-endian f32 seconds */
    "  cell_id INTEGER PRIMARY KEY REFERENCES cell(id) ON DELETE CASCADE,"
    "  n INTEGER NOT NULL, seconds_f32 BLOB NOT NULL) STRICT;"
    "CREATE TABLE event("
    "  id INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  run_id INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,"
    "  unix_ms INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL) STRICT;"
    "CREATE INDEX event_of_run ON event(run_id);",

    /* 1 -> 2: pushes that wait for a network, and the groups we own on a gateway. AUTOINCREMENT: a replaced
     * row gets an id never used before, so "done" for the old body cannot remove the new one. */
    "CREATE TABLE spool("
    "  id INTEGER PRIMARY KEY AUTOINCREMENT, group_url TEXT NOT NULL UNIQUE, target_json TEXT NOT NULL,"
    "  body TEXT NOT NULL, attempts INTEGER NOT NULL, next_try_ms INTEGER NOT NULL,"
    "  last_error TEXT NOT NULL) STRICT;"
    "CREATE TABLE gateway_group("
    "  group_url TEXT PRIMARY KEY, first_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL) STRICT;",

    /* 2 -> 3: runs over time: what each was made of, which was made because of which, and the champions. A
     * champion's run_id is no reference (0: none): it stays when its run is deleted. */
    "CREATE TABLE capsule("
    "  run_id INTEGER PRIMARY KEY REFERENCES run(id) ON DELETE CASCADE, json TEXT NOT NULL) STRICT;"
    "CREATE TABLE run_link("
    "  run_id INTEGER PRIMARY KEY REFERENCES run(id) ON DELETE CASCADE,"
    "  of_run INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE, kind TEXT NOT NULL,"
    "  verdict TEXT NOT NULL) STRICT;"
    "CREATE TABLE baseline("
    "  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, config TEXT NOT NULL,"
    "  model_path TEXT NOT NULL, model_sha256 TEXT, model_name TEXT NOT NULL, workload TEXT NOT NULL,"
    "  metric TEXT NOT NULL, margin REAL, value REAL, machine TEXT NOT NULL, run_id INTEGER NOT NULL,"
    "  set_ms INTEGER NOT NULL) STRICT;",

    /* 3 -> 4: spans: when what a run is made of began and ended (advisor/outcome/outcome.h). No reference to
     * the cell: both go with their run, and 0 is of no cell. */
    "CREATE TABLE span("
    "  id INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  run_id INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE, cell_id INTEGER NOT NULL,"
    "  arm INTEGER NOT NULL, block INTEGER NOT NULL, phase TEXT NOT NULL, name TEXT NOT NULL,"
    "  begun_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL, error TEXT NOT NULL) STRICT;"
    "CREATE INDEX span_of_run ON span(run_id);",

    /* 4 -> 5: the watch: alerts from beginning to end (ended_ms 0: it fires), what is yet to be told about
     * them, and the last value of what is measured once a round. */
    "CREATE TABLE alert("
    "  id INTEGER PRIMARY KEY AUTOINCREMENT, machine TEXT NOT NULL, name TEXT NOT NULL, subject TEXT NOT NULL,"
    "  grade TEXT NOT NULL, since_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL, value REAL, threshold REAL,"
    "  text TEXT NOT NULL, ended TEXT NOT NULL) STRICT;"
    "CREATE UNIQUE INDEX alert_firing ON alert(machine, name, subject) WHERE ended_ms = 0;"
    "CREATE TABLE notice("
    "  id INTEGER PRIMARY KEY AUTOINCREMENT, alert_id INTEGER NOT NULL REFERENCES alert(id) ON DELETE CASCADE,"
    "  kind TEXT NOT NULL, url TEXT NOT NULL, body TEXT NOT NULL, attempts INTEGER NOT NULL,"
    "  next_try_ms INTEGER NOT NULL, refused_ms INTEGER NOT NULL, last_error TEXT NOT NULL) STRICT;"
    "CREATE INDEX notice_of_alert ON notice(alert_id);"
    "CREATE TABLE watch_value("
    "  machine TEXT NOT NULL, signal TEXT NOT NULL, subject TEXT NOT NULL, unix_ms INTEGER NOT NULL, value REAL,"
    "  PRIMARY KEY(machine, signal, subject)) STRICT, WITHOUT ROWID;",

    /* 5 -> 6: the requests a cell ran, for histograms and totals: little-endian f32, five a request (struct
     * request_figures). The index answers how many cells were kept without reading them. */
    "CREATE TABLE request("
    "  cell_id INTEGER PRIMARY KEY REFERENCES cell(id) ON DELETE CASCADE,"
    "  model TEXT NOT NULL, workload TEXT NOT NULL, sequences INTEGER NOT NULL, n INTEGER NOT NULL,"
    "  figures_f32 BLOB NOT NULL) STRICT;"
    "CREATE INDEX cell_result ON cell(discarded, error = '');",

    /* 6 -> 7: runs that a collector could not be told. No body waits: traces are made of the rows above. */
    "CREATE TABLE trace_due("
    "  run_id INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE, url TEXT NOT NULL,"
    "  since_ms INTEGER NOT NULL, attempts INTEGER NOT NULL, last_error TEXT NOT NULL,"
    "  PRIMARY KEY(run_id, url)) STRICT, WITHOUT ROWID;",

    /* 7 -> 8: what was predicted before something was measured, and what it then was
     * (advisor/predict/predict.h). run_id is no reference: a machine goes on knowing what runs taught that
     * were deleted. */
    "CREATE TABLE residual("
    "  id INTEGER PRIMARY KEY AUTOINCREMENT, machine TEXT NOT NULL, basis TEXT NOT NULL, model TEXT NOT NULL,"
    "  config TEXT NOT NULL, workload TEXT NOT NULL, metric TEXT NOT NULL, traits TEXT NOT NULL,"
    "  untaught REAL, predicted REAL, low REAL, high REAL, measured REAL, run_id INTEGER NOT NULL,"
    "  unix_ms INTEGER NOT NULL) STRICT;"
    "CREATE INDEX residual_of_machine ON residual(machine, basis);",

    /* 8 -> 9: what each tensor of a model (its SHA-256) costs in KL divergence when only that one is stored
     * in another format; `basis` says on which text and windows (advisor/recipe/recipe.h). */
    "CREATE TABLE sensitivity("
    "  id INTEGER PRIMARY KEY AUTOINCREMENT, model TEXT NOT NULL, basis TEXT NOT NULL, tensor TEXT NOT NULL,"
    "  format TEXT NOT NULL, bytes INTEGER NOT NULL, kld REAL, kld_se REAL, nmse REAL,"
    "  unix_ms INTEGER NOT NULL) STRICT;"
    "CREATE UNIQUE INDEX sensitivity_once ON sensitivity(model, basis, tensor, format);",

    /* 9 -> 10: how products are best cut into groups on a device (kernels.h, opencl_shapes_measure). */
    "CREATE TABLE device_shapes("
    "  device TEXT PRIMARY KEY, shapes TEXT NOT NULL, unix_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;",

    /* 10 -> 11: how fast memory was beside a run, and what had been predicted without knowing it. */
    "ALTER TABLE residual ADD COLUMN memory_ratio REAL;"
    "ALTER TABLE residual ADD COLUMN foretold REAL;",

    /* 11 -> 12: how fast its cores were. */
    "ALTER TABLE residual ADD COLUMN core_ratio REAL;",
};
const int SCHEMA_VERSION = COUNT_OF(SCHEMA_STEPS);
