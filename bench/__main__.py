"""``python -m bench [PART ...]``: ratios measured side by side in one run; ``--help`` lists the parts.

A figure in seconds would say more about the machine than about the code. Each line is a ratio, or a
time beside another time from the same run, with the project's limit. The parts ``rope``, which measures
losses, ``census``, which rebuilds the attention of published models, ``defaults``, which writes the default
sizes into the table of the census, and ``submission``, which grades a chapter, run only if they are named.
"""

import argparse

from bench import census, memory, paths, repaint, rope, speed, startup, submission, variants

PARTS = {
    "speed": speed.report,
    "memory": memory.report,
    "paths": paths.report,
    "import": startup.report_import,
    "chapters": startup.report_chapters,
    "repaint": repaint.report,
    "variants": variants.report,
}
ONLY_IF_NAMED = {
    "rope": rope.report,
    "census": census.report,
    "defaults": census.fill,
    "submission": submission.report,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parts = PARTS | ONLY_IF_NAMED
    parser.add_argument("parts", nargs="*", help=f"which of {', '.join(parts)}; {', '.join(PARTS)} if none")
    chosen = parser.parse_args().parts or list(PARTS)
    if unknown := set(chosen) - set(parts):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    for part in chosen:
        print(f"\n== {part}", flush=True)
        parts[part]()
