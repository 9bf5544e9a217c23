#!/usr/bin/env python3
"""Compare renderings of chat templates with Jinja's, set up as transformers does.

Templates: the forms in tests/data/chat-golden, each construct of `SNIPPETS`, and the cross product of values
with filters, tests and methods. A difference is another text, or an error on one side only; what qdyno names
as "not supported" is counted apart. Needs the package jinja2 (a virtual environment outside the checkout):

    VENV/bin/python tests/bench/tokens/templates.py --replay build-bench/bench/tokens/tokens_replay
"""
import argparse
import copy
import datetime
import itertools
import json
import pathlib
import subprocess
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "chat-golden"
NOW = 1764000000

MESSAGES = [{"role": "user", "content": "Hello there"}, {"role": "assistant", "content": "Hi"},
            {"role": "user", "content": "Größe <b> \"q\" it's", "n": 2.5, "meta": {"a": [1, None, True], "b": {}}}]
EXTRA = {"tools": None, "number": 7, "pi": 3.14159, "empty": [], "d": {"b": 2, "a": "x", "C": None},
         "nested": [{"t": {"n": "q", "k": 1}}, {"t": {"n": "p"}}, {"z": 0}], "words": ["b", "A", "c", "a"],
         "numbers": [3, 1.5, -2, 10, True], "flag": False, "text": " a,b  c\td\nE é ß ", "zero": 0}

VALUES = ["none", "missing", "true", "false", "0", "7", "-3", "2.5", "-0.0", "1e15", "1e16", "1e-5", "1e22", "0.1+0.2", "''", "'abc'",
          "'Hello World it''s'", "' 12 '", "'1f'", "'-2.5e3'", "'ÄÖ ß ﬁ x'", "text", "words", "numbers", "empty",
          "d", "{}", "nested", "messages", "(1,2)", "(1,)", "range(3)", "messages|map(attribute='role')",
          "d.items()", "d.keys()", "'a\\nb\\n\\nc\\n'", "'<a href=\"x\">&\\'</a>'", "'\\x01\\u200b\\u2028\\xa0'",
          "[[1,'x'],{'k':none}]", "messages|selectattr('role','equalto','zzz')", "1234567", "10**18"]

FILTERS = ["abs", "attr('x')", "batch(2)|list", "batch(2,'-')|list", "capitalize", "center(9)", "count", "default('D')", "d('D',true)",
           "dictsort", "dictsort(by='value')", "e", "escape", "filesizeformat", "filesizeformat(true)", "first", "float",
           "float(default=1.5)", "format(1)", "groupby('role')|list|length", "indent", "indent(2,true)", "indent(2,blank=true)",
           "indent('> ')", "int", "int(5)", "int(base=16)", "int(default=3,base=8)", "items|list", "join", "join(', ')",
           "join('-',attribute='role')", "last", "length", "list", "lower", "map('upper')|list", "map(attribute='t')|list",
           "map(attribute='t.n',default='d')|list", "map(attribute='role')|join(',')", "max", "min", "reject|list", "reject('none')|list",
           "rejectattr('t')|list", "select|list", "select('string')|list", "selectattr('t','defined')|list",
           "selectattr('role','equalto','user')|list|length", "replace('a','b')", "replace('a','b',1)", "reverse|list", "round", "round(1)",
           "round(2,'ceil')", "round(-1)", "round(1,'floor')", "safe", "slice(2)|list", "slice(3,'f')|list", "sort", "sort(reverse=true)",
           "string", "sum", "sum(start=1)", "title", "tojson", "tojson(indent=2)", "tojson(sort_keys=true)", "tojson(true)",
           "tojson(separators=(',',':'))", "tojson(indent='\t')", "trim", "trim('ab ')", "truncate(5)", "truncate(6,true,'~',0)", "unique|list", "upper",
           "urlencode", "wordcount", "list|length", "map('int')|list", "map('default','z')|list", "sort(attribute='role')|list|length",
           "reverse", "map('length')|list", "random_filter_that_is_missing"]

TESTS = ["boolean", "callable", "defined", "undefined", "none", "string", "number", "integer", "float", "mapping", "iterable", "sequence",
         "odd", "even", "divisibleby 3", "eq 7", "equalto('abc')", "ne 7", "lt 3", "gt 3", "ge 0", "le(2)", "in [7,'abc']", "sameas none", "true",
         "false", "upper", "lower", "escaped", "filter", "test", "!= 3"]

METHODS = ["capitalize()", "casefold()", "center(9)", "center(10,'*')", "count('a')", "count('l',3)", "endswith('c')", "endswith(('b','c'))", "expandtabs(4)", "find('l')",
           "find('l',4)", "find('zz')", "format(1)", "index('b')", "isalnum()", "isalpha()", "isascii()", "isdecimal()", "isdigit()", "isidentifier()",
           "islower()", "isnumeric()", "isprintable()", "isspace()", "istitle()", "isupper()", "join(['x','y'])", "ljust(9,'.')", "ljust(4)", "lower()",
           "lstrip()", "lstrip('aH ')", "partition('b')", "removeprefix('a')", "removesuffix('c')", "replace('a','xx')", "replace('','.')", "rfind('l')",
           "rindex('b')", "rjust(9)", "rpartition('b')", "rsplit()", "rsplit(None,1)", "rsplit(' ',1)", "rstrip()", "split()", "split('b')", "split(' ',1)",
           "split(none,1)", "split(',')", "splitlines()", "splitlines(true)", "startswith('a')", "startswith('b',1)", "startswith(('x','a'))", "strip()", "strip('ac')",
           "swapcase()", "title()", "upper()", "zfill(6)", "zfill(2)", "get('a')", "get('zz')", "get('zz','D')", "keys()|list", "values()|list",
           "items()|list", "copy()", "keys()", "items()", "values()", "index(1)", "append(1)", "pop()", "update({})", "no_such()", "count(1)", "encode()", "role", "a", "b.c", "t"]

OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or"]
OPERANDS = ["none", "missing", "true", "0", "7", "-3", "2.5", "-0.5", "'abc'", "'%s'", "words", "[1]", "(1,2)", "d", "empty", "messages|map(attribute='role')",
            "range(2)", "d.items()", "1e15", "''"]

SPECS = ["", "d", "5", "05", "<5", ">5", "^5", "*^7", "+", "+d", "x", "#x", "X", "b", "#b", "o", ",", "_", ",.2f", ".2f", ".0f", "8.3f", "08.3f", "e", ".3e", "g", ".3g", "%",
         ".1%", "s", "10s", ".2s", "=6", "=+6d", ".3", "n", "c", "_x", "010d", "-^9.1f", " ", "E", "G"]
SPEC_VALUES = ["7", "-42", "1234567", "0", "1.5", "-1234.5678", "1e20", "0.00001", "'abc'", "'äö'", "true", "none", "[1]", "100.0", "1.0"]

PERCENTS = ["%s", "%d", "%5d", "%-5d|", "%05d", "%+d", "%x", "%X", "%#x", "%o", "%f", "%.2f", "%8.3f", "%e", "%g", "%r", "%5s", "%-5s|", "%.2s", "%i", "%u", "%c", "%%", "%s %s", "%(a)s", "% d", "%a"]

SNIPPETS = [
    "{% if not tools is defined %}{% set tools = none %}{% endif %}{{ tools|selectattr('type','equalto','x')|list|length }}",
    "{{ tools|map('upper')|list }}{{ tools|reject|list }}{{ tools|rejectattr('x')|list }}{{ tools|select('odd')|list }}",
    "{{ zero|map('nonsense')|list }}{{ ''|select('nonsense')|list }}{{ flag|selectattr('x')|list }}",
    "{{ tools|join(',') }}", "{{ tools|list }}", "{{ tools|length }}", "{{ tools|first }}", "{{ tools|sort }}", "{{ tools|sum }}", "{{ tools|unique|list }}",
    "{% for t in tools %}x{% endfor %}", "{% for t in missing %}x{% else %}none{% endfor %}",
    "{% for m in messages %}{% if m.args is string %}{{ m.args|from_json }}{% else %}{{ m.content }}{% endif %}{% endfor %}",
    "{{ messages[0]|from_json if false else 'ok' }}", "{{ 'a' if true else x|nope }}", "{{ 'a' if false else x|nope }}", "{{ x|nope }}",
    "{% if false %}{{ x|nope }}{% endif %}", "{% if false %}{% for a in words %}{{ a|nope }}{% endfor %}{% endif %}", "{% if x is nope %}{% endif %}",
    "{% if false %}{% if x is nope %}{% endif %}{% elif x is nope2 %}{% else %}{% endif %}", "{% if false %}a{% elif false %}{{ x|nope }}{% else %}{{ 1 }}{% endif %}",
    "{% macro m() %}{{ x|nope }}{% endmacro %}ok", "{% if false %}{% macro m() %}{{ x|nope }}{% endmacro %}{% endif %}ok", "{% for a in [] %}{{ a|nope }}{% endfor %}ok",
    "{% if false %}{% set y = x|nope %}{% endif %}ok", "{% if false %}{% set y %}{{ x|nope }}{% endset %}{% endif %}ok", "{% for a in words if a is nope %}{% endfor %}ok",
    "{% if false %}{% for a in x|nope %}{% endfor %}{% endif %}ok", "{% if false %}{% with q = x|nope %}{% endwith %}{% endif %}ok", "{% if false %}{% filter nope %}{% endfilter %}{% endif %}ok",
    "{{ words|map('nope')|list }}", "{{ words|select('nope')|list }}", "{{ [x|nope] if false }}", "{{ false and x|nope }}",
    "{% for g in messages|groupby('role') %}{{ g.grouper }}={{ g.list|length }},{% endfor %}", "{% for r, l in messages|groupby('role') %}{{ r }}={{ l|length }},{% endfor %}",
    "{{ messages|groupby('role') }}", "{{ nested|groupby('t.n', default='-')|list }}", "{{ (messages|groupby('role'))[0].grouper }}{{ (messages|groupby('role'))[0][0] }}",
    "{% if messages|selectattr('role','equalto','zzz') %}true{% else %}false{% endif %}", "{{ messages|selectattr('role','equalto','zzz')|length }}",
    "{% set g = messages|map(attribute='role') %}{{ g|list }}{{ g|list }}", "{% set g = messages|map(attribute='role') %}{{ g|first }}{{ g|list }}",
    "{{ (messages|map(attribute='role'))[0] }}|", "{{ messages|map(attribute='role')|last }}", "{{ 'user' in messages|map(attribute='role') }}",
    "{% set g = messages|map(attribute='role') %}{{ 'assistant' in g }}{{ g|list }}", "{{ messages|map(attribute='role') is sequence }}{{ messages|map(attribute='role') is iterable }}",
    "{{ [1,2]|reverse is sequence }}{{ 'ab'|reverse }}", "{{ (d.keys()|list)[0] }}{{ d.keys()[0] }}|", "{{ d.keys()|length }}", "{{ range(3)[1:] }}", "{{ range(5)[1] }}{{ range(3)|list }}{{ range(0)|list }}",
    "{{ range(3) + [1] }}", "{{ d.items() + [] }}", "{{ d.items()|tojson }}", "{{ range(2)|tojson }}", "{{ messages|map(attribute='role')|tojson }}",
    "{{ words|sort|join }}{{ words|sort(case_sensitive=true)|join }}{{ words|sort(reverse=true)|join }}", "{{ messages|sort(attribute='role,content')|map(attribute='content')|list }}",
    "{{ '{} {}'.format(1,2) }}{{ '{1}{0}'.format('a','b') }}{{ '{x}'.format(x=1) }}{{ '{0.role}'.format(messages[0]) }}{{ '{0[role]}'.format(messages[0]) }}{{ '{0[1]}'.format([1,2]) }}",
    "{{ '{{}}{!r}'.format('a') }}{{ '{:{w}}|'.format('a', w=5) }}{{ '{:>{}}|'.format('a', 5) }}{{ '{x!r:>6}'.format(x='a') }}", "{{ '{'.format(1) }}", "{{ '}'.format(1) }}", "{{ '{y}'.format(x=1) }}", "{{ '{0.__class__}'.format(1) }}",
    "{{ '{a}-{b}'.format(**{'a':1,'b':2}) }}{{ '{}{}'.format(*[1,2]) }}", "{{ '{a}'.format_map({'a': 3}) }}", "{{ '%(x)s'|format(x='q') }}{{ '%s-%s'|format('a',1) }}{{ '%d%%'|format(50) }}", "{{ '%(a)s %(b)s' % d }}",
    "{{ '%s' % (1,) }}{{ '%s' % [1,2] }}{{ '%s %s' % ('a', none) }}", "{{ '%s' % (1,2) }}", "{{ '%s %s' % 1 }}", "{{ 'x' % d }}", "{{ 'x' % 1 }}",
    "{{ dict(a=1, **{'b': 2}) }}{{ dict([('a',1)]) }}", "{{ dict(a=1) }}{{ dict({'x':1}, y=2) }}", "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1]) }}{{ m(1, **{'b': 5}) }}{{ m(b=1, a=3) }}",
    "{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }}", "{% set ns = namespace(a=1) %}{% set ns.b = 2 %}{{ ns.a }}{{ ns.b }}{{ ns.c }}|",
    "{{ 1 }}{{ 1.0 }}{{ 1e3 }}{{ 1e100 }}{{ 1.5e-7 }}{{ 123456789012345678 }}{{ 0.1 }}{{ 100000.0 * 10 ** 10 }}{{ 5e-324 }}{{ 1.7976931348623157e308 }}",
    "{{ [1.0, 1e16, none, true, 'x\"y', \"it's\", \"both'\\\"\", 'tab\\t', 'é', '\\x7f', '\\u200b'] }}", "{{ {'a': {'b': [1, {'c': none}]}, 1: 2, none: 3, true: 4, 1.5: 5} }}",
    "{{ {'a': 1, 1: 2, none: 3, true: 4, 1.5: 5}|tojson }}", "{{ {}|tojson }}{{ []|tojson(indent=2) }}{{ {'a':[],'b':{}}|tojson(indent=2) }}{{ (1,2)|tojson }}", "{{ {'b':1,'a':2}|tojson(sort_keys=true, indent=1) }}",
    "{{ 'é\\x7f\\u2028<>&\\''|tojson }}{{ 'é\\x7f😀'|tojson(ensure_ascii=true) }}", "{{ missing|tojson }}", "{{ missing.x }}", "{{ none.x }}|{{ none['x'] }}|{{ d.zz }}|{{ d['zz'] }}|{{ words[99] }}|{{ words['a'] }}|{{ 'abc'[9] }}|",
    "{{ missing + 1 }}", "{{ missing ~ 'a' }}|{{ missing == missing }}|{{ missing in [1] }}|{{ 1 in missing }}|{{ missing|length }}|{{ not missing }}", "{{ -7 // 2 }}{{ -7 % 3 }}{{ 7 % -3 }}{{ -7.5 % 2 }}{{ 7.5 // -2 }}{{ 2 ** 0.5 }}{{ 2 ** -1 }}{{ -2 ** 2 }}{{ 2 ** 3 ** 2 }}",
    "{{ 1 / 0 }}", "{{ 1.0 // 0 }}", "{{ 0 ** -1 }}", "{{ 10.0 ** 400 }}", "{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 'a' < 'b' }}{{ [1,2] < [1,3] }}", "{{ 'a' < 1 }}", "{{ true + true }}{{ true == 1 }}{{ 1 == 1.0 }}{{ '1' == 1 }}{{ [1] == (1,) }}",
    "{{ 1_000 }}{{ 0x1F }}{{ 0b11 }}{{ 0o17 }}{{ 1_0.5 }}", "{{ 'a' 'b' }}{{ 'a\\'b' }}{{ \"\\u00e9\" }}", "{{ words[-1] }}{{ words[1:] }}{{ words[::-1] }}{{ 'héllo'[1:3] }}{{ (1,2,3)[:2] }}{{ d[1:] }}|",
    "{{ loop }}|", "{% for w in words %}{{ loop.index }}{{ loop.last }}{{ loop.cycle('a','b') }}{{ loop.changed(w) }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
    "{% for w in words %}{% if loop.index == 2 %}{% continue %}{% endif %}{% if loop.index == 4 %}{% break %}{% endif %}{{ w }}{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }},{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for k, v in d|items %}{{ k }}{% endfor %}{% for k, v in d|dictsort %}{{ k }}{% endfor %}",
    "{% generation %}{{ 1 }}{% endgeneration %}", "{% set x %} a {% endset %}{{ x|trim }}{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% filter upper %}abc{% endfilter %}", "{% with a = 1 %}{{ a }}{% endwith %}", "{% raw %}{{ x }}{% endraw %}", "{% call(x) m() %}{% endcall %}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}x{% endcall %}", "{{ strftime_now('%Y') is string }}", "{{ raise_exception('no') }}", "{{ namespace() is mapping }}{{ d is mapping }}", "{{ 'abc' is filter }}{{ 'upper' is filter }}{{ 'odd' is test }}{{ 'wordwrap' is filter }}",
    "{{ 'a-b c_d e.f'|title }}{{ \"it's o'neil\".title() }}{{ 'ÀÉ ŒUVRE ΑΣ Ж'|lower }}{{ 'straße œuvre ας ж ﬁ'|upper }}{{ 'ǆabc'.title() }}{{ 'İ'.lower() }}{{ 'ΑΣ'.lower() }}",
    "{{ 'a b'|urlencode }}{{ {'a b':'ü/'}|urlencode }}{{ [('x','1'),('y','2 3')]|urlencode }}", "{{ 123456789|filesizeformat }}{{ 1024|filesizeformat(true) }}{{ 999|filesizeformat }}{{ 1|filesizeformat }}{{ 1e30|filesizeformat }}",
    "{{ 2.675|round(2) }}{{ 0.5|round }}{{ 1.5|round }}{{ 2.5|round }}{{ 7|round(1) }}{{ 7.0|round }}{{ 1234|round(-2) }}{{ 1250|round(-2) }}{{ 1234.5|round(-2) }}{{ 1.005|round(2) }}{{ 7|round(0,'ceil') }}{{ 1.21|round(1,'ceil') }}{{ -1.25|round(1) }}{{ 1e20|round(2) }}",
    "{{ '0x1f'|int(base=16) }}{{ '1f'|int(base=16) }}{{ '0b11'|int(base=0) }}{{ '1_000'|int }}{{ ' 42 '|int }}{{ '4.7'|int }}{{ 'x'|int }}{{ 'x'|int(-1) }}{{ true|int }}{{ none|int }}{{ 3.9|int }}{{ -3.9|int }}{{ [1]|int }}{{ '1e3'|int }}{{ '0x1f'|int }}{{ '-0x1f'|int(base=16) }}",
    "{{ '1.5'|float }}{{ 'x'|float }}{{ 'x'|float(2) }}{{ true|float }}{{ '1e5'|float }}{{ ' 2 '|float }}{{ none|float }}", "{{ numbers|sum }}{{ numbers|max }}{{ numbers|min }}{{ nested|sum(attribute='z') }}", "{{ nested|map(attribute='t.n')|list }}", "{{ nested|map(attribute='zz.n', default='d')|list }}{{ messages|map(attribute='x.y', default='d')|list }}",
    "{{ messages|map(attribute=0)|list }}", "{{ [[1,2],[3,4]]|map(attribute=0)|list }}{{ [[1,2],[3,4]]|map('first')|list }}{{ [[1,2],[3,4]]|map('join','-')|list }}{{ [[1,2],[3,4]]|sum(start=[]) }}", "{{ words|map('upper', 1)|list }}", "{{ 'abc'|upper(1) }}", "{{ 'abc'|replace('a') }}", "{{ words|join(d=', ') }}",
    "{{ 'x' is in 'xyz' }}{{ 1 is in [1] }}{{ 'a' is not in 'b' }}{{ 3 is divisibleby(3) }}{{ none is none }}{{ 5 is not none }}", "{{ 'a'.b.c }}", "{{ ''.join(words) }}{{ ','.join(d) }}{{ ''.join([1]) }}", "{{ 'abc'|first }}{{ 'abc'|last }}{{ []|first }}{{ []|last }}|{{ d|first }}{{ d|last }}",
    "{{ [3,1,2]|sort|first }}{{ words|unique|list }}{{ ['a','A']|unique|list }}{{ [1,1.0,true]|unique|list }}", "{{ 'a\\r\\nb\\x0bc\\x1cd\\x85e\\u2028f'.splitlines() }}", "{{ 'x\\ny'|indent(2) }}|{{ 'x\\n\\ny\\n'|indent }}|{{ ''|indent(2,true) }}|", "{{ messages[2].meta }}{{ messages[2].n }}{{ messages[2]|tojson }}",
    "{% if messages is iterable and messages is not string %}y{% endif %}{% if tools is not none and tools %}n{% endif %}", "{{ bos_token ~ eos_token }}{{ bos_token is defined }}{{ pad_token is defined }}", "{{ add_generation_prompt }}", "{{ (messages|first).content }}{{ messages|last|attr('role') }}|",
    "{{ 'Straße'.casefold() }}{{ 'aBc'.swapcase() }}{{ 'ab'.zfill(5) }}{{ '-7'.zfill(4) }}{{ 'a\\tb'.expandtabs() }}{{ '7'.zfill(3) }}{{ 'a:b'.partition(':')[0] }}{{ 'a:b:c'.rpartition(':') }}{{ 'x'.partition(':') }}",
    "{{ '½²٣'.isnumeric() }}{{ '²'.isdigit() }}{{ '٣'.isdecimal() }}{{ 'é'.isalpha() }}{{ 'a1'.isalnum() }}{{ '\\u00a0'.isspace() }}{{ 'Aa Bb'.istitle() }}{{ 'a_1'.isidentifier() }}{{ '1a'.isidentifier() }}{{ ''.isascii() }}{{ '\\n'.isprintable() }}",
]


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_generation"), [], [], body).set_lineno(line)

    def _generation(self, caller):
        return caller()


def environment():
    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    e = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                     extensions=[Generation, jinja2.ext.loopcontrols])
    e.filters["tojson"] = tojson
    e.globals["raise_exception"] = refuse
    e.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW).strftime(f)
    return e


def cases():
    for s in SNIPPETS:
        yield s
    for v, f in itertools.product(VALUES, FILTERS):
        yield "{{ (%s)|%s }}" % (v, f)
    for v, t in itertools.product(VALUES, TESTS):
        yield "{{ (%s) is %s }}" % (v, t)
    for v, m in itertools.product(VALUES, METHODS):
        yield "{{ (%s).%s }}" % (v, m)
    for a, o, b in itertools.product(OPERANDS, OPERATORS, OPERANDS):
        yield "{{ (%s) %s (%s) }}" % (a, o, b)
    for v, s in itertools.product(SPEC_VALUES, SPECS):
        yield "{{ '{:%s}'.format(%s) }}" % (s, v)
    for v, p in itertools.product(SPEC_VALUES + ["d", "('a','b')"], PERCENTS):
        yield "{{ '%s' %% (%s) }}" % (p, v if v.startswith("(") or v == "d" else v + ",")
    for v in VALUES:
        yield "{{ %s }}|{{ [%s] }}|{%% if %s %%}t{%% endif %%}|{%% for x in %s %%}{{ x }};{%% endfor %%}" % (v, v, v, v)
    for path in sorted(DATA.glob("*.jinja")):
        yield path.read_text()


def jinja(env, template, messages, extra):
    try:
        return env.from_string(template).render(messages=copy.deepcopy(messages), bos_token="<s>", eos_token="</s>",
                                                add_generation_prompt=False, **copy.deepcopy(extra)), None
    except Exception as e:  # whatever Jinja or a filter raises: the template refuses
        return None, "%s: %s" % (type(e).__name__, e)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replay", required=True, help="the program tokens_replay")
    parser.add_argument("--show", type=int, default=40, help="differences to print")
    parser.add_argument("--golden", help="write the snippets with Jinja's answers to this file (a test reads it)")
    a = parser.parse_args()
    env = environment()
    if a.golden:
        found = [{"template": s, "text" if r[0] is not None else "error": r[0] if r[0] is not None else r[1]}
                 for s in SNIPPETS for r in [jinja(env, s, MESSAGES, EXTRA)] if "object at 0x" not in (r[0] or "")]
        pathlib.Path(a.golden).write_text(json.dumps({"messages": MESSAGES, "extra": EXTRA, "cases": found}, ensure_ascii=False, indent=0) + "\n")
        return 0
    with subprocess.Popen([a.replay], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
        counts = {"same": 0, "both refuse": 0, "not supported": 0, "different": 0}
        for template in cases():
            want, error = jinja(env, template, MESSAGES, EXTRA)
            p.stdin.write(json.dumps({"template": template, "messages": MESSAGES, "extra": EXTRA}) + "\n")
            p.stdin.flush()
            got = json.loads(p.stdout.readline())
            named = any(w in got.get("error", "") for w in ("not supported", "2^63 or larger"))
            kind = ("same" if want == got.get("text") and want is not None else "both refuse" if want is None and "error" in got
                    else "not supported" if named else "different")
            counts[kind] += 1
            if kind == "different" and counts[kind] <= a.show:
                print("%s\n  jinja %r %s\n  qdyno %r %s" % (template, want, error or "", got.get("text"), got.get("error", "")))
        p.stdin.close()
    print(", ".join("%s: %d" % i for i in counts.items()))
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
