#!/usr/bin/env bash
# check.sh ROOT - keeps the house plan true (docs/architecture.md): prints every line that breaks it, exit 1.
#
#   top      the top level holds the rooms and the usual papers, nothing else
#   up       includes go down only; engine, telemetry and db do not know each other
#   door     another room is entered by <room>/<room>.h or <room>/<sub>/<sub>.h
#   path     "..." includes are written from the root; rooms do not include tests
#   mark     no unfinished-work marks, no disabled code, no flags that break NaN or portability
#
# Tests of a room (tests/<room>/, tests/bench/<room>/) may open that room's inside, everything else by doors.
set -euo pipefail
root=$(cd "$1" && pwd)
cd "$root"

rooms="base kernels engine telemetry db advisor tui"
allowed_top="$rooms tests share docs dev CMakeLists.txt README.md CHANGELOG.md CONTRIBUTING.md LICENSE"

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
            echo "top: '$name' is not in the plan (rooms: $rooms)"
    done
}

check_includes() {
    local folder folders=()
    for folder in $rooms tests; do [ -d "$folder" ] && folders+=("$folder"); done
    find "${folders[@]}" -name '*.[ch]' -print0 | LC_ALL=C sort -z | xargs -0 grep -Hn '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' |
        awk -F: '
        BEGIN { split("base:0 kernels:1 engine:2 telemetry:2 db:2 advisor:3 tui:4", pairs, " ")
                for (i in pairs) { split(pairs[i], p, ":"); rank[p[1]] = p[2] } }
        {
            match($0, /"[^"]*"/)
            what = substr($0, RSTART + 1, RLENGTH - 2); from = $1 ":" $2
            n = split($1, at, "/"); m = split(what, to, "/")
            test = (at[1] == "tests"); room = test ? (at[2] in rank ? at[2] : at[3]) : at[1]
            if (to[1] == "tests" && test) next
            if (!(to[1] in rank) || m < 2) { print "path: " from " includes \"" what "\": write it from the root, <room>/..."; next }
            if (to[1] == room) next
            door = (m == 2 && to[2] == to[1] ".h") || (m == 3 && to[3] == to[2] ".h")
            if (!door) print "door: " from " enters " to[1] " by \"" what "\": want " to[1] "/" to[1] ".h"
            if ((room in rank) && rank[to[1]] >= rank[room]) print "up: " from " in " room " includes \"" what "\""
        }'
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

found=$(check_top; check_includes || true; check_marks)
[ -z "$found" ] && exit 0
printf '%s\n' "$found"
exit 1
