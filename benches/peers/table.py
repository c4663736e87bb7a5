"""The results as Markdown."""

import datetime
import os
import subprocess
from pathlib import Path

NAMES = {
    "ours": "Graphweft",
    "pyg": "PyG",
    "scatter": "torch gather/scatter",
    "compile": "torch.compile",
    "csr": "torch sparse CSR",
    "dgl": "DGL",
    "torch": "torch",
}
TITLES = {
    "attention": ("Attention, 8 heads x 16, forward + backward", "ns per edge"),
    "spmm": ("Sum over neighbours, width 128, forward + backward", "ns per edge"),
    "layer": ("Training step of a 4-layer graph transformer, hidden 128", "seconds"),
    "gcn": ("Epoch of a 3-layer GCN, hidden 128", "seconds"),
    "sage": ("Epoch of a 3-layer GraphSAGE, hidden 128", "seconds"),
    "gat": ("Epoch of a 3-layer GAT, hidden 128, 8 heads", "seconds"),
    "gemm": ("Dense products, 32768 rows, forward + dx + dW", "GFLOP/s"),
}


def milliseconds(line):
    """A whole training step where there is one, otherwise forward and backward."""
    step = line.get("epoch_ms", line.get("step_ms"))
    return line["forward_ms"] + line["backward_ms"] if step is None else step


def value(op, line):
    """A result in the unit of its table."""
    if line is None:
        return "–"
    if line["status"] != "ok":
        return f"> {line['limit_s']:.0f} s" if line["status"] == "out of time" else line["status"]
    if TITLES[op][1] == "seconds":
        return f"{milliseconds(line) / 1e3:.3f}"
    if op == "gemm":
        parts = ("forward_gflops", "input_gradient_gflops", "weight_gradient_gflops")
        return " / ".join(f"{line[part]:.0f}" for part in parts)
    return f"{milliseconds(line) * 1e6 / line['edges']:.0f}"


def ok(line):
    return line is not None and line["status"] == "ok"


def times(line, ours):
    """How many times as long a peer takes."""
    if ok(line) and ok(ours):
        return f"{milliseconds(line) / milliseconds(ours):.2f}"
    return "–"


def table(op, lines):
    """Header and rows, one per graph, threads, implementation and type; every ratio is over one of our variants."""
    groups = {}
    for line in lines:
        key = line["key"]
        group = groups.setdefault((key["graph"], key["threads"]), {})
        row = group.setdefault((key["impl"], key["dtype"]), {})
        row["default" if key["allocator"] == "-" else key["allocator"]] = line
    variants = list(dict.fromkeys(line["key"]["dtype"] for line in lines if line["key"]["impl"] == "ours"))
    floor, memory = any("over_floor" in line for line in lines), op != "gemm"
    header = ["in:out" if op == "gemm" else "graph", "threads", "implementation"]
    header += [f"{TITLES[op][1]}, as installed", "with tcmalloc", *(f"over {variant}" for variant in variants)]
    header += ["over the floor"] * floor + ["peak MiB", "ours / peer"] * memory

    body = []
    for (graph, threads), group in groups.items():
        ours = {dtype: row["default"] for (impl, dtype), row in group.items() if impl == "ours"}
        for (impl, dtype), row in group.items():
            default, tcmalloc = row.get("default"), row.get("tcmalloc")
            cells = [graph, str(threads), f"{NAMES[impl]}, {dtype}", value(op, default)]
            if impl == "ours":
                cells += [""] * (1 + len(variants))
            else:
                cells += [value(op, tcmalloc)]
                cells += [f"{times(default, ours.get(v))} / {times(tcmalloc, ours.get(v))}" for v in variants]
            if floor:
                cells.append(f"{default['over_floor']:.2f}" if ok(default) and "over_floor" in default else "")
            if memory:
                peaks = [line["peak_mib"] for line in (default, tcmalloc) if ok(line)]
                cells.append(f"{min(peaks):.0f}" if peaks else "")
                shares = [f"{ours[v]['peak_mib'] / min(peaks):.2f}" for v in variants if peaks and ok(ours.get(v))]
                cells.append("" if impl == "ours" else " / ".join(shares))
            body.append(cells)
    return header, body


def markdown(header, body):
    """A table whose columns also line up in a terminal; the first three are text, the rest numbers."""
    widths = [max(map(len, column)) for column in zip(header, *body)]

    def line(cells):
        padded = (c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths)))
        return f"| {' | '.join(padded)} |"

    rule = "|" + "|".join("-" * (w + 2) if i < 3 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return "\n".join([line(header), rule, *map(line, body)])


def machine():
    """CPU and core count, without anything that names the machine."""
    cpu = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in cpu if line.startswith("model name")), "unknown CPU")
    flags = next((line.split() for line in cpu if line.startswith("flags")), [])
    wide = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    return f"{model} ({', '.join(wide)}), {os.cpu_count()} cores"


def document(lines):
    git = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    versions = {" ".join(pair) for line in lines for pair in line.get("versions", {}).items()}
    text = [(Path(__file__).parent / "head.md").read_text().rstrip()]
    for op, (title, _) in TITLES.items():
        chosen = [line for line in lines if line["key"]["op"] == op]
        if chosen:
            text += [f"## {title}", markdown(*table(op, chosen))]
    text += [
        "## How these figures came about",
        f"Made by `benches/peers/run.sh`, {datetime.date.today()}, Graphweft {git}.\n"
        f"{machine()}; {', '.join(sorted(versions))}.\nMedians of at least five runs.",
        "Memory: for Graphweft the whole process, for the peers what it grew by after their libraries were loaded, under\n"
        "the allocator that takes less.",
    ]
    return "\n\n".join(text) + "\n"
