#!/usr/bin/env bash
# check.sh ROOT - checks that the tree has the structure that docs/architecture.md describes. Prints every line that
# breaks a rule; exit status 1 when there is one.
#
#   top      the top level holds the modules and the usual files, nothing else
#   up       a module includes lower modules only; engine, telemetry and db do not include each other. Inside a module,
#            a submodule includes lower submodules only
#   order    docs/architecture.md lists the submodules, lowest first, in its table "| module | submodules |"
#   header   another module or submodule is included through its public header: <module>/<module>.h or
#            <module>/<submodule>/<submodule>.h
#   declared a header declares only functions that its own (sub)module defines: a lower one that is linked with a higher
#            one would climb without an #include line
#   path     "..." includes are written from the root; modules do not include tests
#   readme   every submodule has a README.md that names each of its source files
#   json     JSON is read and written by base/json.h alone, because jansson's own functions refuse valid JSON and change
#            numbers
#   quote    words are quoted for a shell by word_append of base/str.c alone
#   mark     no unfinished-work marks, no disabled code, no compiler flags that break NaN or portability
#
# Tests of a module (tests/<module>/, tests/bench/<module>/) may include its internal headers; tests/fuzz/ those of all.
set -euo pipefail
root=$(cd "$1" && pwd)
cd "$root"

modules="base kernels engine telemetry db advisor tui"
# Lines "MODULE SUBMODULE...", lowest submodule first, from the table of submodules. Empty without that table.
submodules=$(sed -n '/^| module | submodules |/,/^$/ s/^| `/`/p' docs/architecture.md 2>/dev/null | # no file: no table
    while IFS='|' read -r module names _; do
        echo "$module $names" | { grep -o '`[^`]*`' || true; } | tr -d '`' | paste -sd' '
    done) || true
allowed_top="$modules tests share docs dev CMakeLists.txt README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE"

top_names() {
    # What is checked in or would be: build folders are ignored, and so is a checkout without git.
    if git -C "$root" rev-parse --show-toplevel 2>/dev/null | grep -qx "$root"; then
        git ls-files --cached --others --exclude-standard | cut -d/ -f1 | sort -u
    else
        ls -1 | grep -vE '^(build|dist)'
    fi | grep -v '^\.' || true
}

check_top() {
    local name
    top_names | while read -r name; do
        [[ " $allowed_top " == *" $name "* ]] ||
            echo "top: '$name' is not part of the plan (modules: $modules)"
    done
}

check_order() {
    local module folder
    if [ -z "$submodules" ]; then
        echo "order: docs/architecture.md has no table '| module | submodules |' with rows like '| \`engine\` | \`gguf\`, \`text\` |'"
        return
    fi
    for module in $(cut -d' ' -f1 <<<"$submodules"); do
        for folder in "$module"/*/; do
            folder=${folder%/}
            compgen -G "$folder/*.[ch]" >/dev/null || continue
            grep -qE "^$module (.* )?${folder##*/}( |\$)" <<<"$submodules" ||
                echo "order: docs/architecture.md does not list $folder in its table of submodules"
        done
    done
}

check_includes() {
    local folder folders=()
    for folder in $modules tests; do [ -d "$folder" ] && folders+=("$folder"); done
    find "${folders[@]}" -name '*.[ch]' -print0 | LC_ALL=C sort -z | xargs -0 grep -Hn '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' |
        awk -F: -v submodules="$submodules" '
        BEGIN { split("base:0 kernels:1 engine:2 telemetry:2 db:2 advisor:3 tui:4", pairs, " ")
                for (i in pairs) { split(pairs[i], p, ":"); rank[p[1]] = p[2] }
                n = split(submodules, lines, "\n")
                for (i = 1; i <= n; i++) {
                    m = split(lines[i], name, " ")
                    if (name[1] == "kernels") continue # one public header: its folders include each other
                    for (j = 2; j <= m; j++) order[name[1] "/" name[j]] = j
                } }
        {
            match($0, /"[^"]*"/)
            what = substr($0, RSTART + 1, RLENGTH - 2); from = $1 ":" $2
            n = split($1, at, "/"); m = split(what, to, "/")
            test = (at[1] == "tests"); module = test ? (at[2] in rank ? at[2] : at[3]) : at[1]
            if (test && (to[1] == "tests" || at[2] == "fuzz")) next
            if (!(to[1] in rank) || m < 2) { print "path: " from " includes \"" what "\": write it from the root, <module>/..."; next }
            public = (m == 2 && to[2] == to[1] ".h") || (m == 3 && to[3] == to[2] ".h")
            if (to[1] == module) { # inside one module: only submodules have rules
                here = at[1] "/" at[2]; there = to[1] "/" to[2]
                if (test || n < 3 || m < 3 || here == there || !(here in order) || !(there in order)) next
                if (!public) print "header: " from " includes \"" what "\": include " there "/" to[2] ".h"
                if (order[there] >= order[here]) print "up: " from " includes \"" what "\", which is not below " here
                next
            }
            if (!public) print "header: " from " includes \"" what "\": include the public header of that (sub)module"
            if ((module in rank) && rank[to[1]] >= rank[module]) print "up: " from " in " module " includes \"" what "\""
        }'
}

# FILE FUNCTION of what a header declares for a higher submodule all the same, as extended regular expressions:
#   config lines name quantization methods, whose table holds the code of engine/quant
climbs='^engine/config/config\.h method_'

# A declaration begins at the start of a line and ends with ";"; a definition's first brace comes before any.
# kernels has one public header for all of its folders.
check_declared() {
    local module folders=()
    for module in $modules; do [ "$module" != kernels ] && [ -d "$module" ] && folders+=("$module"); done
    find "${folders[@]}" -name '*.[ch]' -print0 | LC_ALL=C sort -z | xargs -0 awk -v climbs="$climbs" '
        function folder(file, at, n) { n = split(file, at, "/"); return n > 2 ? at[1] "/" at[2] : at[1] }
        FNR == 1 { text = "" }
        text == "" && (!/^[a-z]/ || /^[a-z_]+:|^(static|typedef|extern) /) { next }
        { text = text " " $0 }
        text !~ /[;{]/ { next }
        text !~ /^[^=]*\(/ { text = ""; next }
        {
            match(text, /[a-z_][a-z0-9_]*\(/); name = substr(text, RSTART, RLENGTH - 1)
            if (FILENAME ~ /\.c$/ && text ~ /^[^;]*\{/) defined[name] = FILENAME
            if (FILENAME ~ /\.h$/ && text !~ /\{/) declared[name] = FILENAME
            text = ""
        }
        END {
            for (name in declared)
                if (name in defined && folder(defined[name]) != folder(declared[name]) &&
                    (declared[name] " " name) !~ climbs)
                    print "declared: " declared[name] " declares " name ", which " defined[name] " defines"
        }' | LC_ALL=C sort
}

# Submodules are folders with sources inside a module. A README names a file as `name.c`, `name.h` or `name.[ch]`.
check_readmes() {
    local folder file name
    for folder in engine/*/ telemetry/*/ advisor/*/ tui/*/ kernels/*/ kernels/*/*/; do
        folder=${folder%/}
        compgen -G "$folder/*.[ch]" >/dev/null || continue
        [ -f "$folder/README.md" ] || { echo "readme: $folder has no README.md"; continue; }
        for file in "$folder"/*.[ch]; do
            name=${file##*/}
            grep -qF -e "$name" -e "${name%.*}.[ch]" "$folder/README.md" || echo "readme: $folder/README.md does not name $name"
        done
    done
}

check_json() {
    local folder folders=()
    for folder in $modules; do [ -d "$folder" ] && folders+=("$folder"); done
    grep -rnE --include='*.[ch]' '\bjson_(load(s|b|f|fd|_file|_callback)|dump(s|b|f|fd|_file|_callback)) *\(' "${folders[@]}" |
        grep -v '^base/json' | LC_ALL=C sort | sed 's/^/json: /' || true
}

check_quotes() {
    local module folders=()
    for module in $modules; do [ -d "$module" ] && folders+=("$module"); done
    grep -rnF --include='*.[ch]' "'\\\\''" "${folders[@]}" | grep -v '^base/str\.c' | LC_ALL=C sort | sed 's/^/quote: /' || true
}

# The words are put together here so that this file does not hold them.
check_marks() {
    local words="TO""DO|FIX""ME|X""XX|HA""CK" skip='^tests/includes/'
    find . -path ./.git -prune -o \( -path './build*' -o -path ./dist \) -prune -o -type f \
        \( -name '*.[ch]' -o -name CMakeLists.txt -o -name '*.cmake' -o -name '*.sh' -o -name dev -o -path './.ci/*' \) -print |
        sed 's|^\./||' | { grep -v "$skip" || true; } | LC_ALL=C sort | while read -r file; do
            grep -HnwE "$words" "$file" | sed 's/^/mark: /' || true
            case $file in
            *.[ch]) grep -HnE '^[[:space:]]*#[[:space:]]*if[[:space:]]+0([^0-9xX.]|$)' "$file" | sed 's/^/mark: /' || true ;;
            *) sed 's/#.*//' "$file" | grep -nE -e "-march=nat""ive|-ffast-ma""th|-Ofa""st" | sed "s|^|mark: $file:|" || true ;;
            esac
        done
}

found=$(check_top; check_order; check_includes || true; check_declared; check_readmes; check_json; check_quotes; check_marks)
[ -z "$found" ] && exit 0
printf '%s\n' "$found"
exit 1
