#!/usr/bin/env python3
"""What a database of qdyno contains, checked without qdyno.

    stored.py DB      prints id, state and number of cells of the last run: "0 none 0" when there is none

Raises AssertionError, or ends with status 1, unless the file is whole (SQLite's own checks), each cell that ran has its
figures and latencies, and the cells of each experiment stand block by block and slot by slot, so that only what comes
behind the last one can be lost.
"""
import os, sqlite3, sys

# of every cell of an A/B that decodes; the median latency is unknown of fewer than some
FIGURES = {"decode_tok_s", "decode_seconds", "generated_tokens", "cpu_seconds", "peak_rss_bytes"}
MEDIAN_NEEDS = 16


def open_database(path):
    """A connection, or None when there are no tables yet."""
    if not os.path.exists(path):
        return None
    for mode in ("ro", "rw"):  # rw: rolls back what was killed while the file was created, as the next command does
        db = sqlite3.connect("file:%s?mode=%s" % (path, mode), uri=True, timeout=20)
        try:
            if db.execute("SELECT count(*) FROM sqlite_master WHERE name IN ('run', 'span')").fetchone()[0] == 2:
                return db
        except sqlite3.OperationalError as e:
            if mode == "rw" or "readonly" not in str(e):
                raise
            db.close()
            continue
        db.close()
        return None


def check_file(db):
    assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok", "integrity_check"
    assert not db.execute("PRAGMA foreign_key_check").fetchall(), "foreign_key_check"


def check_experiment(db, run):
    """Figures, latencies and order of the cells of one A/B."""
    cells = db.execute("SELECT id, phase, block, slot FROM cell WHERE run_id = ? AND error = '' AND phase NOT IN"
                       " ('warmup', 'canary') ORDER BY id", (run,)).fetchall()
    blocks = {}
    for cell, phase, block, slot in cells:
        has = {m for m, in db.execute("SELECT metric FROM measurement WHERE cell_id = ? AND value IS NOT NULL", (cell,))}
        latencies = db.execute("SELECT n FROM itl WHERE cell_id = ?", (cell,)).fetchone()
        assert latencies and latencies[0] > 0, "cell %d lacks its latencies" % cell
        wanted = FIGURES | ({"itl_p50_s"} if latencies[0] >= MEDIAN_NEEDS else set())
        assert wanted <= has, "cell %d lacks %s" % (cell, wanted - has)
        blocks.setdefault((phase, block), []).append(slot)
    for at, slots in blocks.items():
        assert slots == list(range(len(slots))), "block %s: slots %s" % (at, slots)
    for phase in {p for p, _ in blocks}:
        numbers = [b for p, b in blocks if p == phase]
        assert numbers == list(range(len(numbers))), "%s: blocks %s" % (phase, numbers)


def cells_of(db):
    """Every stored cell with what belongs to it: {id: (run, arm, block, slot, phase, values, latencies)}."""
    rows = db.execute("SELECT id, run_id, arm, block, slot, phase,"
                      " (SELECT count(*) FROM measurement WHERE cell_id = cell.id),"
                      " (SELECT n FROM itl WHERE cell_id = cell.id) FROM cell")
    return {row[0]: row[1:] for row in rows}


def main():
    db = open_database(sys.argv[1])
    if db:
        check_file(db)
    last = db and db.execute("SELECT id, kind, state FROM run ORDER BY id DESC LIMIT 1").fetchone()
    if not last:
        print(0, "none", 0)
        return
    if last[1] == "ab":
        check_experiment(db, last[0])
    print(last[0], last[2], db.execute("SELECT count(*) FROM cell WHERE run_id = ?", last[:1]).fetchone()[0])


if __name__ == "__main__":
    main()
