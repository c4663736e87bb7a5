#!/usr/bin/env python3
"""Counts what the code and the prose of this project promise, and fails where a promise is broken.

    .ci/limits.py                  every limit; exit code 1 if one is broken
    .ci/limits.py --list tuples    every place that breaks one limit
    .ci/limits.py --docs           also the public items and their examples, from target/doc (after `cargo doc --workspace --no-deps`)
"""

import argparse
import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUNCTION_LINES = 80
FILE_LINES = 500
WIDTH = 120
README_WORDS = 600
GLOSSARY_WORDS = 25
RESULTS_SENTENCES = 3
RESULTS_BEGIN = 15
PUBLIC_ITEMS = {"graphweft": 80, "graphweft_train": 60}
FOLDERS = "crates|docs|benches|examples|fuzz|profiles|build"
# Files whose comments begin as those of C.
C_LIKE = (".rs", ".cu", ".cuh", ".c", ".js", ".mjs")
VAGUE_NAMES = {"utils", "util", "common", "helpers", "misc"}

# What a crate may build on: arrows point one way. Tests may use what they like.
ARROWS = {
    "base": "",
    "graph": "base",
    "comm": "base",
    "figure": "base",
    "report": "base",
    "tensor": "base graph",
    "model": "base graph tensor",
    "parallel": "base graph comm tensor model",
    "plan": "base graph comm tensor model parallel",
    "train": "base figure graph comm tensor model parallel plan",
    "graphweft": "base figure graph comm report tensor model parallel plan train",
    "cli": "graphweft",
    "python": "graphweft",
}

# Parameters of type bool that are data or are asked for from outside: `function.parameter`, and why.
BOOLS = {
    "serialize_bool.v": "serde's trait has it",
    "visit_bool.v": "serde's trait has it",
    "of.symmetric": "a graph's meta data, which a writer stores",
    "new.symmetrised": "how a partition was made, which is stored beside it",
}


def tracked(*suffixes):
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    paths = [ROOT / name for name in names.stdout.splitlines() if name.endswith(suffixes)]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def at(path, line):
    return f"{path.relative_to(ROOT)}:{line}"


# Rust and CUDA, as far as counting needs it.

NOT_CODE = re.compile(
    r"""//[^\n]*
      | /\*.*?\*/
      | (?:\bb?r(?P<hashes>\#*)"(?:.*?)"(?P=hashes))
      | b?"(?:[^"\\]|\\.)*"
      | b?'(?:[^'\\\n]|\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.))'""",
    re.VERBOSE | re.DOTALL,
)


def code_of(text):
    """The text with comments and literals blanked out, so that every brace that is left is one."""
    blank = lambda found: re.sub(r"[^\n]", " ", found.group())
    return NOT_CODE.sub(blank, text)


def closing(code, begin, pairs):
    """The place of what closes the bracket at `begin`."""
    depth = 0
    for place in range(begin, len(code)):
        if code[place] in pairs[0]:
            depth += 1
        elif code[place] in pairs[1]:
            depth -= 1
            if depth == 0:
                return place
    return len(code) - 1


def split_top(text):
    """Parts between commas that no bracket is around. `->` closes nothing."""
    parts, depth, part = [], 0, ""
    for place, letter in enumerate(text):
        arrow = letter == ">" and text[place - 1 : place] in ("-", "=")
        depth += (letter in "([{<") - (letter in ")]}>" and not arrow)
        if letter == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += letter
    return [one.strip() for one in [*parts, part] if one.strip()]


class Function:
    def __init__(self, path, code, found):
        self.path, self.name = path, found.group(1)
        self.line = code.count("\n", 0, found.start()) + 1
        opened = found.end()
        if code[opened : opened + 1] == "<":
            opened = self.after_generics(code, opened)
        end = closing(code, opened, ("(", ")"))
        self.parameters = [self.parameter(one) for one in split_top(code[opened + 1 : end])]
        body = re.compile(r"[{;]").search(code, end)
        self.lines = 0
        if body and body.group() == "{":
            last = closing(code, body.start(), ("{", "}"))
            self.lines = code.count("\n", found.start(), last) + 1

    @staticmethod
    def after_generics(code, place):
        depth = 0
        while True:
            if code[place] == "<":
                depth += 1
            elif code[place] == ">" and code[place - 1] != "-":
                depth -= 1
            place += 1
            if depth == 0:
                return code.index("(", place)

    @staticmethod
    def parameter(text):
        """Pattern and type; attributes are left out."""
        text = re.sub(r"^(#\[[^\]]*\]\s*)+", "", text)
        pattern, _, kind = text.partition(":") if not text.startswith("(") else text.rpartition("):")
        return pattern.strip(), kind.strip()


def functions_of_rust():
    for path in tracked(".rs"):
        code = code_of(path.read_text())
        for found in re.finditer(r"\bfn\s+([A-Za-z_][A-Za-z0-9_]*)\s*(?=[<(])", code):
            yield Function(path, code, found)


def functions_of_cuda():
    """Blocks after a list of parameters, wherever they are not inside of another: name, line, lines."""
    for path in tracked(".cu", ".cuh"):
        code = code_of(path.read_text())
        place = 0
        for found in re.finditer(r"\b(\w+)\s*\([^;{}]*\)\s*\{", code):
            if found.start() >= place:
                place = closing(code, found.end() - 1, ("{", "}"))
                line, lines = (code.count("\n", *span) + 1 for span in [(0, found.start()), (found.start(), place)])
                yield path, found.group(1), line, lines


def functions_of_python():
    for path in tracked(".py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                yield path, node.name, node.lineno, node.end_lineno - node.lineno + 1


# The limits. Each yields the places that break it.


def functions():
    for one in functions_of_rust():
        if one.lines > FUNCTION_LINES:
            yield f"{at(one.path, one.line)}: {one.name} has {one.lines} lines"
    for path, name, line, lines in [*functions_of_cuda(), *functions_of_python()]:
        if lines > FUNCTION_LINES:
            yield f"{at(path, line)}: {name} has {lines} lines"


def files():
    for path in tracked(*C_LIKE, ".py"):
        lines = len(path.read_text().splitlines())
        if lines > FILE_LINES:
            yield f"{at(path, lines)}: {lines} lines"


def names():
    for path in tracked(".rs", ".cu", ".py"):
        if VAGUE_NAMES & {path.stem, path.parent.name}:
            yield f"{at(path, 1)}: the name says nothing"


def tuples():
    for one in functions_of_rust():
        for pattern, kind in one.parameters:
            bare = re.sub(r"^&\s*('\w+\s+)?(mut\s+)?", "", kind)
            if pattern.startswith("(") or (bare.startswith("(") and len(split_top(bare[1:-1])) > 1):
                yield f"{at(one.path, one.line)}: {one.name} takes {' '.join(f'{pattern}: {kind}'.split())}"


def tuples_inside():
    """Parameters that may be left out all together, and lists of what has parts that have parts."""
    for one in functions_of_rust():
        for pattern, kind in one.parameters:
            if " in " in pattern or pattern.endswith(" in prop"):
                continue
            # What a closure takes and gives is no parameter.
            kind = re.sub(r"\b(dyn |impl )?Fn(Mut|Once)?\(.*", "", kind, flags=re.DOTALL)
            optional = re.search(r"\bOption<\s*&?\s*('\w+\s+)?(mut\s+)?(\(.*)", kind, flags=re.DOTALL)
            begin = kind.find("(", optional.start()) if optional else -1
            parts = split_top(kind[begin + 1 : closing(kind, begin, ("(", ")"))]) if optional else []
            nested = re.search(r"\([^()]*\([^()]*,[^()]*\)[^()]*,|\([^()]*,[^()]*\([^()]*,", kind)
            if len(parts) > 1 or nested:
                yield f"{at(one.path, one.line)}: {one.name} takes {' '.join(f'{pattern}: {kind}'.split())}"


def bools():
    for one in functions_of_rust():
        for pattern, kind in one.parameters:
            if kind == "bool" and f"{one.name}.{pattern.removeprefix('mut ')}" not in BOOLS:
                yield f"{at(one.path, one.line)}: {one.name} takes {pattern}: bool"


def too_wide(line):
    """Tables and addresses cannot be broken."""
    text = line.rstrip("\n")
    bare = re.sub(r"^\s*(//[/!]?|#)?\s*", "", text)
    return len(text) > WIDTH and not bare.startswith("|") and not re.search(r"https?://\S{40,}", text)


def prose():
    for path in tracked(".md"):
        inside = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.lstrip().startswith("```"):
                inside = not inside
            elif not inside and too_wide(line):
                yield f"{at(path, number)}: {len(line)} characters"


def comments():
    for path in tracked(*C_LIKE, ".py", ".sh", ".toml", "run"):
        marks = ("//", "/*", "*") if path.suffix in C_LIKE else ("#",)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            trailing = re.search(r"\s(//|#) ", line) and path.suffix in C_LIKE
            if (line.lstrip().startswith(marks) or trailing) and too_wide(line):
                yield f"{at(path, number)}: {len(line)} characters"


def links():
    """What prose names must be there: files that are linked, headings inside of them, and paths between backticks."""
    for path in tracked(".md"):
        text = re.sub(r"^```.*?^```", lambda found: re.sub(r"[^\n]", "", found.group()), path.read_text(), flags=re.M | re.S)
        named = [(found, path.parent, found.group(1)) for found in re.finditer(r"\]\(([^)\s]+)\)", text)]
        named += [(found, ROOT, found.group(1)) for found in re.finditer(rf"`((?:{FOLDERS})/[\w./-]+)`", text)]
        for found, folder, target in named:
            target, _, heading = target.partition("#")
            file = folder / target if target else path
            if target.startswith(("http://", "https://")):
                continue
            if not file.exists():
                yield f"{at(path, text.count(chr(10), 0, found.start()) + 1)}: there is no {target}"
            elif heading and file.suffix == ".md" and heading not in headings(file):
                yield f"{at(path, text.count(chr(10), 0, found.start()) + 1)}: {target} has no heading #{heading}"


def headings(path):
    """The anchors that a page's headings become."""
    lines = [line.lstrip("#").strip().lower() for line in path.read_text().splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", line).replace(" ", "-") for line in lines}


def arrows():
    """Dependencies of crates, also those of one platform and of build scripts, that ARROWS does not allow."""
    for path in tracked("Cargo.toml"):
        crate = path.parent.name
        if path.parent.parent != ROOT / "crates":
            continue
        manifest = tomllib.loads(path.read_text())
        for table in [manifest, *manifest.get("target", {}).values()]:
            for name in {**table.get("dependencies", {}), **table.get("build-dependencies", {})}:
                used = name.removeprefix("graphweft-")
                if name.startswith("graphweft") and used not in ARROWS.get(crate, "").split():
                    yield f"{at(path, 1)}: {crate} uses {used}"


def profiles():
    """Levels below 2 of the program's own crate: links are optimised as it is, and no loop of a kernel becomes vectors."""
    release = tomllib.loads((ROOT / "Cargo.toml").read_text())["profile"]["release"]
    for name in ("graphweft-cli", "graphweft-python", "graphweft-tensor"):
        level = release.get("package", {}).get(name, {}).get("opt-level", release.get("opt-level", 3))
        if level not in (2, 3):
            yield f"Cargo.toml: {name} has opt-level {level!r}"


def readme():
    words = len((ROOT / "README.md").read_text().split())
    if words > README_WORDS:
        yield f"README.md: {words} words"


def glossary():
    """Rows of the table below the heading Glossary."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    _, found, after = text.partition("## Glossary")
    rows = [line for line in after.split("\n## ")[0].splitlines() if line.startswith("| ")]
    words = len([line for line in rows if not set(line) <= set("|- ")]) - 1
    if not found or words > GLOSSARY_WORDS:
        yield f"ARCHITECTURE.md: {words} words in the glossary" if found else "ARCHITECTURE.md: there is no glossary"


def results():
    """Pages of results that do not begin with at most three sentences and a table, in either order."""
    pages = [path for path in tracked(".md") if path.parent.parent == ROOT / "benches" and path.stem.isupper()]
    for path in [*pages, ROOT / "docs/trillion.md"]:
        if path.stem == "README":
            continue
        lines = path.read_text().splitlines()
        table = next((k for k, line in enumerate(lines) if line.startswith("|")), len(lines))
        begin = re.split(r"\n\s*\n|\n\|", "\n".join(lines[1:]).strip())[0]
        sentences = 0 if table < 4 else len(re.findall(r"[.!?]\*{0,2}(?=\s|$)", begin))
        if table >= RESULTS_BEGIN or sentences > RESULTS_SENTENCES:
            yield f"{at(path, table + 1)}: {sentences} sentences, and a table {table} lines below"


def public_pages(crate):
    """The pages of all public items of a crate, by what their links in the list of all say."""
    page = ROOT / "target/doc" / crate / "all.html"
    if not page.is_file():
        return None
    return [page.parent / link for link in re.findall(r"<li><a href=\"([^#\"]+)", page.read_text().split('id="main-content"')[-1])]


def examples():
    """Public items of the facade without an example. `cargo test --doc` runs them."""
    for page in public_pages("graphweft") or []:
        if "example-wrap" not in page.read_text():
            yield f"{page.relative_to(ROOT)}: no example"


def public_items():
    for crate, most in PUBLIC_ITEMS.items():
        pages = public_pages(crate)
        if pages is None:
            yield f"target/doc/{crate}/all.html: not there; run cargo doc --workspace --no-deps"
        elif len(pages) > most:
            yield f"{crate}: {len(pages)} public items, at most {most}"


LIMITS = {
    "functions": (functions, f"functions of more than {FUNCTION_LINES} lines"),
    "files": (files, f"files of more than {FILE_LINES} lines"),
    "names": (names, f"files or folders called {', '.join(sorted(VAGUE_NAMES))}"),
    "tuples": (tuples, "parameters that are tuples"),
    "tuples inside": (tuples_inside, "parameters with tuples that may be left out, or inside of tuples"),
    "bools": (bools, "parameters of type bool that select behaviour"),
    "arrows": (arrows, "dependencies against the arrows between crates"),
    "prose": (prose, f"lines of prose of more than {WIDTH} characters"),
    "comments": (comments, f"lines of comments of more than {WIDTH} characters"),
    "links": (links, "links and paths in prose that lead nowhere"),
    "profiles": (profiles, "programs that are linked without vectors"),
    "readme": (readme, f"a README of more than {README_WORDS} words"),
    "glossary": (glossary, f"a glossary of more than {GLOSSARY_WORDS} words"),
    "results": (results, f"pages of results without {RESULTS_SENTENCES} sentences and a table at their beginning"),
    "examples": (examples, "public items of the facade without an example"),
    "public items": (public_items, "crates with more public items than they may have"),
}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--list", choices=LIMITS, help="every place that breaks this limit")
    options.add_argument("--docs", action="store_true", help="count public items too")
    chosen = options.parse_args()
    if chosen.list:
        print("\n".join(LIMITS[chosen.list][0]()))
        return
    failed = False
    for name, (limit, meaning) in LIMITS.items():
        if name in ("public items", "examples") and not chosen.docs:
            continue
        places = list(limit())
        failed |= bool(places)
        print(f"{len(places):5} {meaning}")
        if places:
            print("\n".join(f"      {place}" for place in places[:20]))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
