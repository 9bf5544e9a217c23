#!/usr/bin/env python3
"""Writes share/examples/stories.task.jsonl: 200 questions about stories of the held-out split, which the bundled model was not trained
on. Each shows the beginning of a story up to the last word or two of a sentence, and asks for them; the three wrong choices end
other sentences. The same program gives the same file.

    tests/bench/quality/make_task.py QDYNO > share/examples/stories.task.jsonl
"""

import json
import random
import re
import subprocess
import sys

ITEMS = 200


def main():
    stories = subprocess.run([sys.argv[1], "stories", "-n", "2000", "--split", "held-out", "--seed", "71"], check=True,
                             capture_output=True, text=True).stdout.splitlines()
    draw = random.Random(71)
    cut = []
    for story in stories:
        sentences = re.findall(r'[^.!?]+[.!?]"?', story)
        at = draw.randrange(1, len(sentences)) if len(sentences) > 2 else None
        if at is None or '"' in sentences[at]:
            continue
        words = sentences[at].split()
        last = draw.choice((1, 2))
        if len(words) < last + 4:
            continue
        lead = "".join(sentences[:at]) + " " + " ".join(words[:-last])
        cut.append((lead.strip(), " ".join(words[-last:]), last))
    for lead, right, last in cut[:ITEMS]:
        wrong = [r for _, r, n in cut if n == last and r != right and r[0].isupper() == right[0].isupper()]
        choices = draw.sample(sorted(set(wrong)), 3) + [right]
        draw.shuffle(choices)
        print(json.dumps({"question": lead, "choices": choices, "answer": choices.index(right)}))


main()
