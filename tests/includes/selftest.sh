#!/usr/bin/env bash
# Proves: check.sh passes a good tree and names each kind of breakage in a bad one, and nothing else.
set -euo pipefail
check=$(cd "$(dirname "$0")" && pwd)/check.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

put() { # put FILE LINES...
    mkdir -p "$tree/$(dirname "$1")"
    printf '%s\n' "${@:2}" >"$tree/$1"
}

put base/base.h '#include "base/err.h"'
put base/err.h '#include <stdio.h>'
put kernels/kernels.h '#include "base/base.h"'
put engine/engine.h '#include "kernels/kernels.h"' '#include "engine/parts.h"'
put engine/quant/quant.h '#include "engine/engine.h"'
put engine/quant/README.md '* `quant.[ch]`: methods'
put engine/quant/quant.c 'int quant_count(void)' '{' '}' 'static int sized(int n);' 'int (*const TABLE[])(void) = { NULL };'
put advisor/advisor.h '#include "engine/quant/quant.h"' '#include "db/db.h"'
put db/db.h '#include "base/base.h"'
put tests/db/test_db.c '#include "db/inside.h"' '#include "tests/check.h"' '#include "base/base.h"'
put tests/bench/kernels/bench.c '#include "kernels/inside.h"'
put docs/architecture.md '| module | submodules |' '|---|---|' '| `kernels` | `formats` (some words), `isa` |' \
    '| `engine` | `gguf`, `quant`, `eval` |' '' '| `engine` | `late` |'
put kernels/formats/formats.h '#include "kernels/isa/isa.h"'
put kernels/formats/README.md '* `formats.h`: formats'
put CMakeLists.txt '# never -march=nat''ive'
put build/junk.c '#include "nowhere.h"'
if ! out=$("$check" "$tree") || [ -n "$out" ]; then
    echo "the good tree was refused:"
    echo "$out"
    exit 1
fi

table=$(cat "$tree/docs/architecture.md")
rm "$tree/docs/architecture.md"
if "$check" "$tree" >"$tree/out" || ! grep -q "^order: docs/architecture.md has no table '| module | submodules |'" "$tree/out"; then
    echo "a tree without the table of submodules was accepted, or refused without saying so:"
    cat "$tree/out"
    exit 1
fi
rm "$tree/out"
put docs/architecture.md "$table"

put attic/old.c 'int x;'
put base/up.c '#include "kernels/kernels.h"'
put engine/peer.c '# include "db/db.h"'
put advisor/inside.c '#include "engine/parts.h"'
put engine/gguf/gguf.h '#include "engine/quant/quant.h"'
put engine/eval/eval.c '#include "engine/quant/inside.h"'
put engine/late/late.h '#include "engine/engine.h"'
put engine/gguf/climb.h 'size_t quant_count(void);' 'int gguf_own(int a,' '             int b);'
put engine/gguf/own.c 'int gguf_own(int a,' '             int b)' '{' '}'
put engine/late/README.md '* `late.h`: in no table'
put engine/eval/README.md '* `other.c`: something else'
put tui/near.c '#include "theme.h"'
put tui/tests.c '#include "tests/check.h"'
put tests/db/peek.c '#include "engine/parts.h"'
put advisor/read.c 'x = json_loads(text, 0, NULL);' 'y = json_line(x);'
put tui/quoter.c "str_append(s, \"'\\\\''\");"
put base/json.c 'x = json_loadb(text, n, 0, NULL);'
put kernels/mark.c '/* TO''DO: later */' '#if 0' '#endif' '#if 01 < X' 'mkstemp("XX''XXXX");'
put kernels/CMakeLists.txt 'add_compile_options(-ffast-ma''th)'
want="top: 'attic' is not part of the plan (modules: base kernels engine telemetry db advisor tui)
order: docs/architecture.md does not list engine/late in its table of submodules
up: base/up.c:1 in base includes \"kernels/kernels.h\"
up: engine/peer.c:1 in engine includes \"db/db.h\"
header: advisor/inside.c:1 includes \"engine/parts.h\": include the public header of that (sub)module
up: engine/gguf/gguf.h:1 includes \"engine/quant/quant.h\", which is not below engine/gguf
header: engine/eval/eval.c:1 includes \"engine/quant/inside.h\": include engine/quant/quant.h
declared: engine/gguf/climb.h declares quant_count, which engine/quant/quant.c defines
readme: engine/gguf has no README.md
readme: engine/eval/README.md does not name eval.c
path: tui/near.c:1 includes \"theme.h\": write it from the root, <module>/...
path: tui/tests.c:1 includes \"tests/check.h\": write it from the root, <module>/...
header: tests/db/peek.c:1 includes \"engine/parts.h\": include the public header of that (sub)module
up: tests/db/peek.c:1 in db includes \"engine/parts.h\"
json: advisor/read.c:1:x = json_loads(text, 0, NULL);
quote: tui/quoter.c:1:str_append(s, \"'\\\\''\");
mark: kernels/CMakeLists.txt:1:add_compile_options(-ffast-ma""th)
mark: kernels/mark.c:1:/* TO""DO: later */
mark: kernels/mark.c:2:#if 0"
if out=$("$check" "$tree"); then
    echo "the bad tree was accepted"
    exit 1
fi
diff <(sort <<<"$want") <(sort <<<"$out") && echo "good passes, bad is named"
