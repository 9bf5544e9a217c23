/* db/schema.c - the tables, as a list of migrations.
 *
 * Step i updates a file of user_version i to i + 1. A released step is never edited: a change is a new step,
 * and a fixture of the version before it is added to tests/db/fixtures. A new metric is a new row, not a new
 * column. Tables are STRICT, so that a text in a number column is an error. */
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

    /* 1 -> 2: pushes that could not be sent yet, and groups that we created on a gateway. AUTOINCREMENT gives
     * a replaced row a new id, so that marking the old body as sent cannot delete the new one. */
    "CREATE TABLE spool("
    "  id INTEGER PRIMARY KEY AUTOINCREMENT, group_url TEXT NOT NULL UNIQUE, target_json TEXT NOT NULL,"
    "  body TEXT NOT NULL, attempts INTEGER NOT NULL, next_try_ms INTEGER NOT NULL,"
    "  last_error TEXT NOT NULL) STRICT;"
    "CREATE TABLE gateway_group("
    "  group_url TEXT PRIMARY KEY, first_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL) STRICT;",

    /* 2 -> 3: capsules, links between runs, and baselines. A baseline's run_id is not a reference, because
     * the baseline is kept when its run is deleted; 0: no run. */
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

    /* 3 -> 4: spans. cell_id is not a reference, because 0 means no cell; cells and spans are deleted with
     * their run. */
    "CREATE TABLE span("
    "  id INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  run_id INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE, cell_id INTEGER NOT NULL,"
    "  arm INTEGER NOT NULL, block INTEGER NOT NULL, phase TEXT NOT NULL, name TEXT NOT NULL,"
    "  begun_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL, error TEXT NOT NULL) STRICT;"
    "CREATE INDEX span_of_run ON span(run_id);",

    /* 4 -> 5: the watch: alerts (ended_ms 0: firing), notices that wait for delivery, and the last value of
     * each signal. */
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

    /* 5 -> 6: the requests of cells, for histograms and totals: little-endian f32, five per request (struct
     * request_figures). With the index, cells are counted without reading them. */
    "CREATE TABLE request("
    "  cell_id INTEGER PRIMARY KEY REFERENCES cell(id) ON DELETE CASCADE,"
    "  model TEXT NOT NULL, workload TEXT NOT NULL, sequences INTEGER NOT NULL, n INTEGER NOT NULL,"
    "  figures_f32 BLOB NOT NULL) STRICT;"
    "CREATE INDEX cell_result ON cell(discarded, error = '');",

    /* 6 -> 7: runs whose trace could not be sent. No body is stored, because traces are built from other
       tables. */
    "CREATE TABLE trace_due("
    "  run_id INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE, url TEXT NOT NULL,"
    "  since_ms INTEGER NOT NULL, attempts INTEGER NOT NULL, last_error TEXT NOT NULL,"
    "  PRIMARY KEY(run_id, url)) STRICT, WITHOUT ROWID;",

    /* 7 -> 8: prediction residuals. run_id is not a reference, because residuals are kept when their run is
     * deleted. */
    "CREATE TABLE residual("
    "  id INTEGER PRIMARY KEY AUTOINCREMENT, machine TEXT NOT NULL, basis TEXT NOT NULL, model TEXT NOT NULL,"
    "  config TEXT NOT NULL, workload TEXT NOT NULL, metric TEXT NOT NULL, traits TEXT NOT NULL,"
    "  untaught REAL, predicted REAL, low REAL, high REAL, measured REAL, run_id INTEGER NOT NULL,"
    "  unix_ms INTEGER NOT NULL) STRICT;"
    "CREATE INDEX residual_of_machine ON residual(machine, basis);",

    /* 8 -> 9: the KL divergence of a model when a single tensor is stored in another format; `basis`
     * identifies text and windows of the measurement. */
    "CREATE TABLE sensitivity("
    "  id INTEGER PRIMARY KEY AUTOINCREMENT, model TEXT NOT NULL, basis TEXT NOT NULL, tensor TEXT NOT NULL,"
    "  format TEXT NOT NULL, bytes INTEGER NOT NULL, kld REAL, kld_se REAL, nmse REAL,"
    "  unix_ms INTEGER NOT NULL) STRICT;"
    "CREATE UNIQUE INDEX sensitivity_once ON sensitivity(model, basis, tensor, format);",

    /* 9 -> 10: the fastest work-group shapes of OpenCL devices (opencl_shapes_measure in kernels.h). */
    "CREATE TABLE device_shapes("
    "  device TEXT PRIMARY KEY, shapes TEXT NOT NULL, unix_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;",

    /* 10 -> 11: the speed of memory during a run, and the prediction that did not know it. */
    "ALTER TABLE residual ADD COLUMN memory_ratio REAL;"
    "ALTER TABLE residual ADD COLUMN foretold REAL;",

    /* 11 -> 12: the speed of cores during a run. */
    "ALTER TABLE residual ADD COLUMN core_ratio REAL;",

    /* 12 -> 13: labels of runs, KEY=VALUE pairs of the user. */
    "CREATE TABLE run_label("
    "  run_id INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE, key TEXT NOT NULL, value TEXT NOT NULL,"
    "  PRIMARY KEY(run_id, key)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX run_label_value ON run_label(key, value);",

    /* 13 -> 14: runs that were deleted and can still be restored; their rows are removed later. */
    "CREATE TABLE run_deleted("
    "  run_id INTEGER PRIMARY KEY REFERENCES run(id) ON DELETE CASCADE, unix_ms INTEGER NOT NULL) STRICT;",

    /* 14 -> 15: the text that a model's quality is measured on, where the user chose another than the bundled
     * one; sha256 is that of the text. */
    "CREATE TABLE model_text("
    "  model TEXT PRIMARY KEY REFERENCES model(sha256) ON DELETE CASCADE, path TEXT NOT NULL,"
    "  sha256 TEXT NOT NULL, set_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;",
};
const int SCHEMA_VERSION = COUNT_OF(SCHEMA_STEPS);
