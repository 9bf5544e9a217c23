#!/usr/bin/env bash
# The program is built so that a memory error can do little: position-independent, with read-only relocations, a stack
# that is not executable, stack protector and fortified string functions. It does not say where it was built: the same
# program comes out of every folder (./dev package --check).
. "$(dirname "$0")/lib.sh" "$@"

have readelf && have nm || { skip "no readelf: install binutils"; exit 77; }
nm -D "$QDYNO" | grep -q __asan_init && { skip "built with a sanitizer"; exit 77; }
nm -D "$QDYNO" | grep -q __tsan_init && { skip "built with a sanitizer"; exit 77; }
headers=$(readelf -lW "$QDYNO") dynamic=$(readelf -dW "$QDYNO") symbols=$(nm -D "$QDYNO")
[[ $headers == *"Elf file type is DYN"* && $dynamic == *PIE* ]] || fail "not a position-independent executable"
[[ $headers == *GNU_RELRO* ]] || fail "relocations stay writable"
[[ $dynamic == *NOW* ]] || fail "symbols are bound while the program runs: the table of addresses stays writable"
grep -Eq 'GNU_STACK.* RW ' <<<"$headers" || fail "the stack is executable"
[[ $symbols == *__stack_chk_fail* ]] || fail "no stack protector"
grep -Eq '__(sn|v|vsn|f)?printf_chk|__memcpy_chk' <<<"$symbols" || fail "no fortified functions"
top=$(cd "$(dirname "$0")/../.." && pwd)
grep -aqF "$top/" "$QDYNO" && fail "it contains the path of its sources: $(grep -aoF "$top/" "$QDYNO" | wc -l) times"
finish
